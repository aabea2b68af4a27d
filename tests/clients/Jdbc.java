// pgjdbc: prepared statements, batches, fetch size, transactions, COPY, metadata.

import java.io.StringReader;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.sql.*;
import java.time.*;
import java.util.*;
import org.postgresql.PGConnection;
import org.postgresql.util.PSQLException;

public final class Jdbc {
    interface Check { void run(Connection connection) throws Exception; }

    private static final Map<String, Check> CHECKS = new LinkedHashMap<>();

    private static void equal(Object actual, Object expected) {
        if (!Objects.equals(actual, expected)) {
            throw new AssertionError(actual + " is not " + expected);
        }
    }

    private static Object one(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery(sql)) {
            rows.next();
            return rows.getObject(1);
        }
    }

    private static void run(Connection connection, String... statements) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            for (String sql : statements) {
                statement.execute(sql);
            }
        }
    }

    private static String stateOf(Check check, Connection connection) throws Exception {
        try {
            check.run(connection);
        } catch (SQLException error) {
            return error.getSQLState();
        }
        throw new AssertionError("nothing was raised");
    }

    private static List<String> column(ResultSet rows, String name) throws SQLException {
        List<String> values = new ArrayList<>();
        while (rows.next()) {
            values.add(rows.getString(name));
        }
        return values;
    }

    static {
        // The fifth run goes by a named statement, and values then travel in binary.
        CHECKS.put("values_come_back_as_they_went", connection -> {
            String sql = "SELECT ?::boolean, ?::int, ?::bigint, ?::double precision, ?::numeric(20,4), ?::text, ?::bytea,"
                + " ?::date, ?::timestamp, ?::timestamptz, ?::uuid, ?::int";
            UUID uuid = UUID.randomUUID();
            OffsetDateTime moment = OffsetDateTime.of(2024, 7, 1, 12, 0, 0, 0, ZoneOffset.UTC);
            try (PreparedStatement statement = connection.prepareStatement(sql)) {
                for (int run = 0; run < 8; run++) {
                    statement.setBoolean(1, true);
                    statement.setInt(2, run);
                    statement.setLong(3, Long.MIN_VALUE);
                    statement.setDouble(4, -0.25);
                    statement.setBigDecimal(5, new BigDecimal("1234567.8901"));
                    statement.setString(6, "größer");
                    statement.setBytes(7, new byte[] {0, -1});
                    statement.setObject(8, LocalDate.of(1992, 2, 29));
                    statement.setObject(9, LocalDateTime.of(2024, 2, 29, 1, 2, 3));
                    statement.setObject(10, moment);
                    statement.setObject(11, uuid);
                    statement.setNull(12, Types.INTEGER);
                    try (ResultSet row = statement.executeQuery()) {
                        row.next();
                        equal(row.getBoolean(1), true);
                        equal(row.getInt(2), run);
                        equal(row.getLong(3), Long.MIN_VALUE);
                        equal(row.getDouble(4), -0.25);
                        equal(row.getBigDecimal(5), new BigDecimal("1234567.8901"));
                        equal(row.getString(6), "größer");
                        equal(Arrays.toString(row.getBytes(7)), "[0, -1]");
                        equal(row.getObject(8, LocalDate.class), LocalDate.of(1992, 2, 29));
                        equal(row.getObject(9, LocalDateTime.class), LocalDateTime.of(2024, 2, 29, 1, 2, 3));
                        equal(row.getObject(10, OffsetDateTime.class).toInstant(), moment.toInstant());
                        equal(row.getObject(11), uuid);
                        equal(row.getObject(12), null);
                    }
                }
            }
        });
        CHECKS.put("batches_are_one_transaction", connection -> {
            run(connection, "CREATE TABLE batched (id integer PRIMARY KEY, name varchar(20) NOT NULL, n numeric(8,2))");
            connection.setAutoCommit(false);
            try (PreparedStatement insert = connection.prepareStatement("INSERT INTO batched VALUES (?, ?, ?)")) {
                for (int id = 0; id < 1000; id++) {
                    insert.setInt(1, id);
                    insert.setString(2, "name " + id);
                    insert.setBigDecimal(3, BigDecimal.valueOf(id, 2));
                    insert.addBatch();
                }
                equal(insert.executeBatch().length, 1000);
                connection.commit();
                insert.setInt(1, 1000);
                insert.setString(2, "new");
                insert.setNull(3, Types.NUMERIC);
                insert.addBatch();
                insert.setInt(1, 7);
                insert.addBatch();
                try {
                    insert.executeBatch();
                    throw new AssertionError("a duplicate was taken");
                } catch (BatchUpdateException error) {
                    equal(error.getSQLState(), "23505");
                }
            }
            connection.rollback();
            connection.setAutoCommit(true);
            equal(one(connection, "SELECT count(*) FROM batched"), 1000L);
        });
        CHECKS.put("large_results_come_in_pieces", connection -> {
            connection.setAutoCommit(false);
            try (Statement statement = connection.createStatement()) {
                statement.setFetchSize(50);
                long sum = 0;
                try (ResultSet rows = statement.executeQuery("SELECT id FROM batched ORDER BY id")) {
                    while (rows.next()) {
                        sum += rows.getInt(1);
                    }
                }
                equal(sum, 499_500L);
            }
            connection.commit();
            connection.setAutoCommit(true);
        });
        CHECKS.put("savepoints_and_generated_keys", connection -> {
            connection.setAutoCommit(false);
            Savepoint before = connection.setSavepoint("before");
            equal(stateOf(c -> run(c, "INSERT INTO batched VALUES (1, 'again', 0)"), connection), "23505");
            equal(stateOf(c -> run(c, "SELECT 1"), connection), "25P02");
            connection.rollback(before);
            String sql = "INSERT INTO batched VALUES (5000, 'returned', 1.5)";
            try (PreparedStatement insert = connection.prepareStatement(sql, new String[] {"id", "n"})) {
                equal(insert.executeUpdate(), 1);
                try (ResultSet keys = insert.getGeneratedKeys()) {
                    keys.next();
                    equal(keys.getInt("id"), 5000);
                    equal(keys.getBigDecimal("n"), new BigDecimal("1.50"));
                }
            }
            connection.rollback();
            connection.setAutoCommit(true);
            equal(one(connection, "SELECT count(*) FROM batched"), 1000L);
        });
        CHECKS.put("errors_name_what_was_violated", connection -> {
            try {
                run(connection, "INSERT INTO batched (id) VALUES (9000)");
                throw new AssertionError("NULL was taken");
            } catch (PSQLException error) {
                equal(error.getSQLState(), "23502");
                equal(error.getServerErrorMessage().getColumn(), "name");
                equal(error.getServerErrorMessage().getTable(), "batched");
            }
        });
        CHECKS.put("isolation_levels_hold", connection -> {
            connection.setTransactionIsolation(Connection.TRANSACTION_REPEATABLE_READ);
            equal(connection.getTransactionIsolation(), Connection.TRANSACTION_REPEATABLE_READ);
            connection.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);
            connection.setReadOnly(true);
            connection.setAutoCommit(false);
            equal(stateOf(c -> run(c, "DELETE FROM batched"), connection), "25006");
            connection.rollback();
            connection.setAutoCommit(true);
            connection.setReadOnly(false);
        });
        CHECKS.put("queries_time_out", connection -> {
            try (Statement statement = connection.createStatement()) {
                statement.setQueryTimeout(1);
                String endless = "SELECT count(*) FROM generate_series(1, 2000000000) a(x) WHERE x % 7 = 3";
                equal(stateOf(c -> statement.executeQuery(endless), connection), "57014");
            }
            equal(one(connection, "SELECT 1"), 1);
        });
        CHECKS.put("copy_moves_rows_both_ways", connection -> {
            var copy = connection.unwrap(PGConnection.class).getCopyAPI();
            equal(copy.copyIn("COPY batched FROM STDIN (FORMAT csv)", new StringReader("2000,\"a, b\",1.00\n2001,c,\n")), 2L);
            StringWriter out = new StringWriter();
            equal(copy.copyOut("COPY (SELECT * FROM batched WHERE id >= 2000 ORDER BY id) TO STDOUT (FORMAT csv)", out), 2L);
            equal(out.toString(), "2000,\"a, b\",1.00\n2001,c,\n");
        });
        CHECKS.put("metadata_describe_the_schema", connection -> {
            run(connection,
                "CREATE SCHEMA shop",
                "CREATE TABLE shop.item (id integer, part integer, name varchar(30) NOT NULL, price numeric(10,2) DEFAULT 0, PRIMARY KEY (id, part))",
                "CREATE INDEX item_name ON shop.item (name)",
                "CREATE VIEW shop.cheap AS SELECT id FROM shop.item WHERE price < 1",
                "COMMENT ON TABLE shop.item IS 'what is sold'");
            DatabaseMetaData meta = connection.getMetaData();
            equal(meta.getDatabaseProductName(), "PostgreSQL");
            try (ResultSet rows = meta.getTables(null, "shop", "%", new String[] {"TABLE", "VIEW"})) {
                equal(column(rows, "TABLE_NAME"), List.of("item", "cheap"));
            }
            try (ResultSet rows = meta.getTables(null, "shop", "item", null)) {
                equal(column(rows, "REMARKS"), List.of("what is sold"));
            }
            try (ResultSet rows = meta.getColumns(null, "shop", "item", "%")) {
                List<String> shown = new ArrayList<>();
                while (rows.next()) {
                    shown.add(rows.getString("COLUMN_NAME") + " " + rows.getString("TYPE_NAME") + " " + rows.getInt("COLUMN_SIZE")
                        + " " + rows.getInt("DECIMAL_DIGITS") + " " + rows.getString("IS_NULLABLE") + " " + rows.getString("COLUMN_DEF"));
                }
                equal(shown, List.of("id int4 10 0 NO null", "part int4 10 0 NO null", "name varchar 30 0 NO null", "price numeric 10 2 YES 0"));
            }
            try (ResultSet rows = meta.getPrimaryKeys(null, "shop", "item")) {
                equal(column(rows, "COLUMN_NAME"), List.of("id", "part"));
            }
            try (ResultSet rows = meta.getIndexInfo(null, "shop", "item", false, false)) {
                equal(column(rows, "INDEX_NAME"), List.of("item_pkey", "item_pkey", "item_name"));
            }
            try (ResultSet rows = meta.getSchemas()) {
                equal(column(rows, "TABLE_SCHEM").containsAll(List.of("public", "shop", "pg_catalog", "information_schema")), true);
            }
            try (PreparedStatement statement = connection.prepareStatement("SELECT name, price FROM shop.item WHERE id = ?")) {
                ResultSetMetaData columns = statement.getMetaData();
                equal(columns.getColumnCount(), 2);
                equal(columns.getColumnTypeName(1), "varchar");
                equal(columns.getPrecision(2), 10);
                equal(columns.getScale(2), 2);
                equal(statement.getParameterMetaData().getParameterTypeName(1), "int4");
            }
        });
    }

    public static void main(String[] arguments) throws Exception {
        int failed = 0;
        try (Connection connection = DriverManager.getConnection(arguments[0])) {
            for (Map.Entry<String, Check> check : CHECKS.entrySet()) {
                try {
                    check.getValue().run(connection);
                    System.out.println("ok " + check.getKey());
                } catch (Throwable error) {
                    failed++;
                    System.out.println("failed " + check.getKey());
                    error.printStackTrace(System.out);
                    if (!connection.getAutoCommit()) {
                        connection.rollback();
                        connection.setAutoCommit(true);
                    }
                }
            }
        }
        System.exit(failed == 0 ? 0 : 1);
    }
}
