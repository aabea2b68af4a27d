"""SQLAlchemy 2 over psycopg: schema creation, the ORM, and reflection."""

import datetime as dt
import sys
from decimal import Decimal

from checks import check, equal, raises, run
from sqlalchemy import (
    CheckConstraint, Column, Date, ForeignKey, Identity, Index, Integer, MetaData, Numeric, String, Table,
    UniqueConstraint, create_engine, exc, func, inspect, select, update,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship


class Base(DeclarativeBase):
    pass


class Customer(Base):
    __tablename__ = "customer"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(40), nullable=False)
    city: Mapped[str | None] = mapped_column(String(20), server_default="Berlin")
    orders: Mapped[list["Order"]] = relationship(back_populates="customer", cascade="all, delete-orphan")
    __table_args__ = (UniqueConstraint("name", name="customer_name_unique"), Index("customer_city", "city"))


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(Identity(start=1000), primary_key=True)
    customer_id: Mapped[int] = mapped_column(ForeignKey("customer.id", name="orders_customer"))
    day: Mapped[dt.date] = mapped_column(Date)
    price: Mapped[Decimal] = mapped_column(Numeric(12, 2))
    customer: Mapped[Customer] = relationship(back_populates="orders")
    __table_args__ = (CheckConstraint("price >= 0", name="price_is_positive"),)


@check
def tables_are_made_and_found_again(engine):
    Base.metadata.create_all(engine)
    Base.metadata.create_all(engine)
    inspector = inspect(engine)
    equal(sorted(inspector.get_table_names()), ["customer", "orders"])
    equal(inspector.get_pk_constraint("orders")["constrained_columns"], ["id"])
    columns = {column["name"]: column for column in inspector.get_columns("orders")}
    equal(list(columns), ["id", "customer_id", "day", "price"])
    equal(str(columns["price"]["type"]), "NUMERIC(12, 2)")
    equal(columns["day"]["nullable"], False)
    equal((columns["id"]["identity"]["start"], columns["id"]["identity"]["always"]), (1000, False))
    columns = {column["name"]: column for column in inspector.get_columns("customer")}
    equal(str(columns["name"]["type"]), "VARCHAR(40)")
    assert "Berlin" in columns["city"]["default"]
    equal(columns["id"]["default"], "nextval('customer_id_seq'::regclass)")
    equal(inspector.get_sequence_names(), ["customer_id_seq", "orders_id_seq"])
    equal([index["name"] for index in inspector.get_indexes("customer") if not index["unique"]], ["customer_city"])
    equal(inspector.get_unique_constraints("customer")[0]["column_names"], ["name"])
    equal(inspector.get_check_constraints("orders")[0]["name"], "price_is_positive")
    (key,) = inspector.get_foreign_keys("orders")
    equal((key["constrained_columns"], key["referred_table"], key["referred_columns"]), (["customer_id"], "customer", ["id"]))


@check
def objects_are_kept_and_queried(engine):
    with Session(engine) as session:
        for number in range(5):
            customer = Customer(name=f"customer {number}")
            customer.orders = [
                Order(day=dt.date(2024, 1, 1 + day), price=Decimal(number * 10 + day))
                for day in range(3)
            ]
            session.add(customer)
        session.commit()
        assert session.get(Customer, 1).city == "Berlin"
        equal(session.scalar(select(func.max(Order.id))), 1014)
        total = select(Customer.name, func.sum(Order.price)).join(Order).group_by(Customer.name).order_by(Customer.name)
        equal(session.execute(total).all()[1], ("customer 1", Decimal("33.00")))
        late = select(Order).where(Order.day > dt.date(2024, 1, 2)).order_by(Order.id)
        equal(len(session.scalars(late).all()), 5)
        session.execute(update(Order).where(Order.price < 2).values(price=Order.price + 100))
        session.commit()
        equal(session.scalar(select(func.count()).where(Order.price >= 100)), 2)


@check
def changes_are_flushed_and_rolled_back(engine):
    with Session(engine) as session:
        first = session.scalars(select(Customer).order_by(Customer.id)).first()
        first.name = "renamed"
        session.flush()
        equal(session.scalar(select(Customer.name).where(Customer.id == first.id)), "renamed")
        session.rollback()
        equal(first.name, "customer 0")
        session.delete(first)
        session.commit()
        equal(session.scalar(select(func.count()).select_from(Order)), 12)


@check
def violations_raise_integrity_errors(engine):
    with Session(engine) as session:
        session.add(Customer(name="customer 1"))
        raises(exc.IntegrityError, session.flush)
        session.rollback()
        with session.begin_nested():
            session.add(Customer(name="customer 9"))
        nested = session.begin_nested()
        session.add(Order(customer_id=10**6, day=dt.date(2024, 1, 1), price=1))
        raises(exc.IntegrityError, session.flush)
        nested.rollback()
        session.commit()
        equal(session.scalar(select(func.count()).where(Customer.name == "customer 9")), 1)


@check
def tables_are_reflected_whole(engine):
    metadata = MetaData()
    metadata.reflect(engine)
    reflected = metadata.tables["orders"]
    equal([column.name for column in reflected.primary_key], ["id"])
    with engine.connect() as connection:
        equal(connection.execute(select(func.max(reflected.c.price))).scalar(), Decimal("42.00"))


@check
def many_rows_are_inserted_and_streamed(engine):
    metadata = MetaData()
    numbers = Table("numbers", metadata, Column("n", Integer, primary_key=True, autoincrement=False), Column("word", String))
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(numbers.insert(), [{"n": n, "word": str(n)} for n in range(10_000)])
    with engine.connect() as connection:
        rows = connection.execution_options(stream_results=True, yield_per=500).execute(select(numbers).order_by(numbers.c.n))
        equal(sum(row.n for row in rows), 49_995_000)
    metadata.drop_all(engine)


@check
def everything_is_dropped(engine):
    Base.metadata.drop_all(engine)
    equal(inspect(engine).get_table_names(), [])


if __name__ == "__main__":
    run(create_engine(sys.argv[1].replace("postgresql://", "postgresql+psycopg://")))
