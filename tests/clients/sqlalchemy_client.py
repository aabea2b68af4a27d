"""SQLAlchemy 2 over psycopg: schema creation, the ORM, Core, types, reflection, asyncio."""

import asyncio
import datetime as dt
import enum
import sys
import uuid
from decimal import Decimal

from checks import check, equal, raises, run
from sqlalchemy import (
    BigInteger, Boolean, CheckConstraint, Column, Date, DateTime, Double, Enum, Float, ForeignKey, ForeignKeyConstraint,
    Identity, Index, Integer, Interval, LargeBinary, MetaData, Numeric, PrimaryKeyConstraint, SmallInteger, String, Table, Text, Time,
    UniqueConstraint, Uuid, any_, case, cast, create_engine, delete, exc, exists, extract, func, inspect, literal, select, text,
    true, tuple_, union_all, update,
)
from sqlalchemy.dialects.postgresql import ARRAY, insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import (
    DeclarativeBase, Mapped, Session, aliased, joinedload, mapped_column, relationship, selectinload,
)
from sqlalchemy.schema import CreateSchema, DropSchema


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
def related_objects_are_loaded(engine):
    with Session(engine) as session:
        joined = select(Customer).options(joinedload(Customer.orders)).order_by(Customer.id)
        equal([len(customer.orders) for customer in session.scalars(joined).unique()], [3, 3, 3, 3, 0])
        later = select(Customer).options(selectinload(Customer.orders)).order_by(Customer.id).limit(2).offset(1)
        equal([len(customer.orders) for customer in session.scalars(later)], [3, 3])
        busy = select(Customer.name).where(Customer.orders.any(Order.price > 40)).order_by(Customer.name)
        equal(session.scalars(busy).all(), ["customer 4"])
        idle = select(Customer.name).where(~Customer.orders.any())
        equal(session.scalars(idle).all(), ["customer 9"])
        locked = session.get(Order, 1003, with_for_update={"nowait": True})
        locked.price += 1
        session.commit()
        session.refresh(locked)
        equal(locked.price, Decimal("11.00"))


class Kind(enum.Enum):
    small = 1
    large = 2


@check
def values_of_all_types_are_kept(engine):
    metadata = MetaData()
    table = Table(
        "kept", metadata, Column("id", Integer, primary_key=True, autoincrement=False), Column("flag", Boolean),
        Column("small", SmallInteger), Column("big", BigInteger), Column("real", Float(24)), Column("double", Double),
        Column("number", Numeric(20, 5)), Column("word", String(10)), Column("words", Text), Column("bytes", LargeBinary),
        Column("uuid", Uuid), Column("day", Date), Column("time", Time), Column("moment", DateTime),
        Column("instant", DateTime(timezone=True)), Column("span", Interval), Column("kind", Enum(Kind, native_enum=False)),
    )
    metadata.create_all(engine)
    instant = dt.datetime(2024, 7, 1, 12, 30, 0, 250, tzinfo=dt.timezone.utc)
    row = {
        "id": 1, "flag": True, "small": -3, "big": 2**62, "real": 0.25, "double": 1e-300, "number": Decimal("-12345.67890"),
        "word": "größer", "words": "a\nb", "bytes": b"\0\xff", "uuid": uuid.UUID(int=7), "day": dt.date(1992, 2, 29),
        "time": dt.time(23, 59, 59, 5), "moment": dt.datetime(2024, 2, 29, 1, 2, 3), "instant": instant,
        "span": dt.timedelta(days=2, seconds=5), "kind": Kind.large,
    }
    with engine.begin() as connection:
        connection.execute(table.insert(), row)
        connection.execute(table.insert(), {"id": 2})
        equal(dict(connection.execute(select(table).where(table.c.id == 1)).one()._mapping), row)
        equal(set(connection.execute(select(table).where(table.c.id == 2)).one()[1:]), {None})
        for column in table.c:
            found = select(table.c.id).where(column == row[column.name])
            equal((column.name, connection.execute(found).scalars().all()), (column.name, [1]))
    columns = {column["name"]: str(column["type"]) for column in inspect(engine).get_columns("kept")}
    equal(columns, {
        "id": "INTEGER", "flag": "BOOLEAN", "small": "SMALLINT", "big": "BIGINT", "real": "REAL",
        "double": "DOUBLE PRECISION", "number": "NUMERIC(20, 5)", "word": "VARCHAR(10)", "words": "TEXT", "bytes": "BYTEA",
        "uuid": "UUID", "day": "DATE", "time": "TIME", "moment": "TIMESTAMP", "instant": "TIMESTAMP", "span": "INTERVAL",
        "kind": "VARCHAR(5)",
    })
    metadata.drop_all(engine)


@check
def core_statements_are_postgresqls(engine):
    metadata = MetaData()
    sales = Table(
        "sales", metadata, Column("id", Integer, primary_key=True, autoincrement=False), Column("region", String(10)),
        Column("amount", Numeric(10, 2), nullable=False), Column("day", Date),
    )
    metadata.create_all(engine)
    rows = [{"id": n, "region": "north" if n % 3 else "south", "amount": n, "day": dt.date(2024, 1 + n % 4, 1)} for n in range(40)]
    with engine.begin() as connection:
        made = connection.execute(sales.insert().returning(sales.c.id, sort_by_parameter_order=True), rows)
        equal(made.scalars().all(), list(range(40)))
        change = upsert(sales).values([{"id": 0, "amount": 5}, {"id": 40, "amount": 7}])
        change = change.on_conflict_do_update(index_elements=["id"], set_={"amount": sales.c.amount + change.excluded.amount})
        equal(connection.execute(change.returning(sales.c.id, sales.c.amount)).all(), [(0, Decimal("5.00")), (40, Decimal("7.00"))])
        ignored = upsert(sales).values(id=1, amount=1).on_conflict_do_nothing()
        equal(connection.execute(ignored.returning(sales.c.id)).all(), [])
        by_region = (
            select(sales.c.region, func.count().label("sales"), func.sum(sales.c.amount).label("total"))
            .group_by(sales.c.region).having(func.count() > 5).order_by(sales.c.region)
        )
        equal(connection.execute(by_region).all(), [("north", 26, Decimal("507.00")), ("south", 14, Decimal("278.00"))])
        rank = func.row_number().over(partition_by=sales.c.region, order_by=sales.c.amount.desc()).label("rank")
        ranked = select(sales.c.id, rank).where(sales.c.region.is_not(None)).cte("ranked")
        equal(connection.execute(select(ranked.c.id).where(ranked.c.rank == 1).order_by(ranked.c.id)).scalars().all(), [38, 39])
        n = select(literal(1).label("n")).cte("n", recursive=True)
        n = n.union_all(select(n.c.n + 1).where(n.c.n < 10))
        equal(connection.scalar(select(func.sum(n.c.n))), 55)
        other = aliased(sales)
        pairs = select(func.count()).select_from(sales.join(other, (sales.c.id == other.c.id + 1) & (other.c.region == sales.c.region)))
        equal(connection.scalar(pairs), 13)
        size = case((sales.c.amount < 10, "small"), (sales.c.amount < 30, "medium"), else_="large")
        sizes = select(size.label("size"), func.count()).group_by("size").order_by(func.count().desc(), "size")
        equal(connection.execute(sizes).all(), [("medium", 20), ("small", 11), ("large", 10)])
        month = extract("month", sales.c.day)
        equal(connection.execute(select(month, func.count()).where(month.in_([1, 2])).group_by(month).order_by(month)).all(), [(1, 10), (2, 10)])
        keys = tuple_(sales.c.id, sales.c.region).in_([(3, "south"), (4, "south"), (5, "north")])
        equal(connection.execute(select(sales.c.id).where(keys).order_by(sales.c.id)).scalars().all(), [3, 5])
        listed = sales.c.id == any_(cast([7, 8], ARRAY(Integer)))
        equal(connection.execute(select(sales.c.id).where(listed).order_by(sales.c.id)).scalars().all(), [7, 8])
        both = union_all(select(sales.c.id).where(sales.c.id < 2), select(sales.c.id).where(sales.c.id > 39)).order_by("id")
        equal(connection.execute(both).scalars().all(), [0, 1, 40])
        regions = select(sales.c.region, func.max(sales.c.amount).label("most")).group_by(sales.c.region).subquery()
        raised = update(sales).where(sales.c.region == regions.c.region, sales.c.amount == regions.c.most).values(amount=1000)
        equal(connection.execute(raised).rowcount, 2)
        gone = delete(sales).where(exists().where(other.c.id == sales.c.id, other.c.amount == 1000)).returning(sales.c.id)
        equal(sorted(connection.execute(gone).scalars()), [38, 39])
        words = select(func.lower(sales.c.region) + "!", cast(sales.c.id, String), func.coalesce(sales.c.region, "none"))
        equal(connection.execute(words.where(sales.c.id == 1)).one(), ("north!", "1", "north"))
        equal(connection.execute(text("SELECT :a + :b AS c"), {"a": 1, "b": 2}).one().c, 3)
        like = select(func.count()).where(sales.c.region.ilike("NOR%"), sales.c.day.between(dt.date(2024, 1, 1), dt.date(2024, 2, 1)))
        equal(connection.scalar(like), 13)
        each = select(literal("x").label("x")).lateral()
        equal(connection.scalar(select(func.count()).select_from(sales.join(each, true()))), 39)
    metadata.drop_all(engine)


@check
def other_schemas_views_and_comments_are_reflected(engine):
    metadata = MetaData(schema="shop")
    Table(
        "part", metadata, Column("maker", Integer), Column("number", Integer, comment="of the maker"), Column("name", String(30)),
        PrimaryKeyConstraint("maker", "number", name="part_key"), UniqueConstraint("name", "maker", name="part_name"),
        comment="what things are made of",
    )
    Table(
        "stock", metadata, Column("id", Integer, primary_key=True, autoincrement=False), Column("maker", Integer), Column("number", Integer),
        Column("amount", Integer, server_default=text("0"), nullable=False), CheckConstraint("amount >= 0", name="stock_amount"),
        ForeignKeyConstraint(["maker", "number"], ["shop.part.maker", "shop.part.number"], name="stock_part", ondelete="CASCADE"),
        Index("stock_by_part", "maker", "number", unique=True),
    )
    with engine.begin() as connection:
        connection.execute(CreateSchema("shop"))
        metadata.create_all(connection)
        connection.execute(text("CREATE VIEW shop.scarce AS SELECT id, amount FROM shop.stock WHERE amount < 10"))
    inspector = inspect(engine)
    equal({"public", "shop"} <= set(inspector.get_schema_names()), True)
    equal(sorted(inspector.get_table_names("shop")), ["part", "stock"])
    equal(inspector.get_view_names("shop"), ["scarce"])
    equal("amount < 10" in inspector.get_view_definition("scarce", "shop"), True)
    equal([column["name"] for column in inspector.get_columns("scarce", "shop")], ["id", "amount"])
    equal(inspector.get_table_comment("part", "shop"), {"text": "what things are made of"})
    equal([column["comment"] for column in inspector.get_columns("part", "shop")], [None, "of the maker", None])
    equal(inspector.get_pk_constraint("part", "shop")["name"], "part_key")
    equal(inspector.get_unique_constraints("part", "shop")[0]["column_names"], ["name", "maker"])
    (index,) = inspector.get_indexes("stock", "shop")
    equal((index["name"], index["column_names"], index["unique"]), ("stock_by_part", ["maker", "number"], True))
    (key,) = inspector.get_foreign_keys("stock", "shop")
    equal((key["referred_schema"], key["referred_table"], key["options"]), ("shop", "part", {"ondelete": "CASCADE"}))
    equal(inspector.get_check_constraints("stock", "shop")[0]["sqltext"], "amount >= 0")
    equal(inspector.get_columns("stock", "shop")[3]["default"], "0")
    equal(sorted(name for _, name in inspector.get_multi_columns("shop")), ["part", "stock"])
    equal((inspector.has_table("stock", "shop"), inspector.has_table("stock"), inspector.has_schema("shop")), (True, False, True))
    equal(inspector.get_sequence_names("shop"), [])
    reflected = MetaData(schema="shop")
    reflected.reflect(engine, views=True)
    equal(sorted(reflected.tables), ["shop.part", "shop.scarce", "shop.stock"])
    equal([fk.target_fullname for fk in reflected.tables["shop.stock"].c.maker.foreign_keys], ["shop.part.maker"])
    with engine.begin() as connection:
        connection.execute(DropSchema("shop", cascade=True))
    equal(inspect(engine).has_schema("shop"), False)


@check
def connections_have_their_isolation_and_survive_in_pools(engine):
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        equal(connection.get_isolation_level(), "REPEATABLE READ")
        equal(connection.scalar(text("SHOW transaction_isolation")), "repeatable read")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("CREATE TABLE pooled (id integer PRIMARY KEY)"))
    with engine.connect() as connection:
        with connection.begin():
            connection.execute(text("INSERT INTO pooled VALUES (1)"))
            savepoint = connection.begin_nested()
            connection.execute(text("INSERT INTO pooled VALUES (2)"))
            savepoint.rollback()
        equal(connection.scalar(text("SELECT count(*) FROM pooled")), 1)
    pool = create_engine(engine.url, pool_pre_ping=True, pool_size=2)
    with pool.connect() as connection:
        connection.invalidate()
    with pool.connect() as connection:
        equal(connection.execute(text("DROP TABLE pooled")).rowcount, -1)
        connection.commit()
    pool.dispose()


@check
def sessions_are_async(engine):
    async def work():
        engine_of_tasks = create_async_engine(engine.url)
        async with AsyncSession(engine_of_tasks) as session:
            names = await session.scalars(select(Customer.name).order_by(Customer.name).limit(2))
            equal(names.all(), ["customer 1", "customer 2"])
            session.add(Customer(id=500, name="async"))
            await session.commit()
            stream = await session.stream_scalars(select(Order.id).order_by(Order.id))
            equal(len([id async for id in stream]), 12)
            await session.execute(delete(Customer).where(Customer.id == 500))
            await session.commit()
        await engine_of_tasks.dispose()

    asyncio.run(work())


@check
def everything_is_dropped(engine):
    Base.metadata.drop_all(engine)
    equal(inspect(engine).get_table_names(), [])


if __name__ == "__main__":
    run(create_engine(sys.argv[1].replace("postgresql://", "postgresql+psycopg://")))
