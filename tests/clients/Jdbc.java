// pgjdbc: prepared statements, batches, arrays, fetch size, scrollable and updatable results, transactions, COPY, metadata.

import java.io.ByteArrayInputStream;
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
        CHECKS.put("arrays_are_parameters_and_results", connection -> {
            run(connection, "CREATE TABLE listed (id integer PRIMARY KEY, name text, n numeric(8,2))",
                "INSERT INTO listed SELECT x, 'name ' || x, x / 4.0 FROM generate_series(1, 100) s(x)");
            String sql = "SELECT id FROM listed WHERE id = ANY (?) AND name <> ALL (?) ORDER BY id";
            try (PreparedStatement statement = connection.prepareStatement(sql)) {
                for (int run = 0; run < 8; run++) {
                    statement.setArray(1, connection.createArrayOf("int4", new Integer[] {run, 50, null, 1000}));
                    statement.setArray(2, connection.createArrayOf("text", new String[] {"a \"b\"", "{,}", "", "name 3"}));
                    List<String> expected = new ArrayList<>();
                    if (run != 0 && run != 3) {
                        expected.add(String.valueOf(run));
                    }
                    expected.add("50");
                    equal(column(statement.executeQuery(), "id"), expected);
                }
            }
            try (PreparedStatement statement = connection.prepareStatement("SELECT ?::numeric[], ?::text[], array_agg(id ORDER BY id) FROM listed WHERE id < 4")) {
                for (int run = 0; run < 8; run++) {
                    BigDecimal[] numbers = {new BigDecimal("1.5"), null};
                    String[] texts = {"NULL", null, "größer\\"};
                    statement.setArray(1, connection.createArrayOf("numeric", numbers));
                    statement.setArray(2, connection.createArrayOf("text", texts));
                    try (ResultSet row = statement.executeQuery()) {
                        row.next();
                        equal(new BigDecimal("1.5").compareTo(((BigDecimal[]) row.getArray(1).getArray())[0]), 0);
                        equal(Arrays.asList((String[]) row.getArray(2).getArray()), Arrays.asList(texts));
                        equal(Arrays.asList((Integer[]) row.getArray(3).getArray()), List.of(1, 2, 3));
                    }
                }
            }
        });
        CHECKS.put("results_are_scrolled_and_updated", connection -> {
            run(connection, "CREATE TABLE scrolled (id integer PRIMARY KEY, name text)",
                "INSERT INTO scrolled SELECT x, 'name ' || x FROM generate_series(1, 20) s(x)");
            try (Statement statement = connection.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_READ_ONLY);
                    ResultSet rows = statement.executeQuery("SELECT id FROM scrolled ORDER BY id")) {
                rows.last();
                equal(rows.getRow(), 20);
                rows.absolute(5);
                equal(rows.getInt(1), 5);
                rows.relative(-2);
                equal(rows.getInt(1), 3);
                equal(rows.previous(), true);
                rows.beforeFirst();
                equal(rows.previous(), false);
            }
            try (Statement statement = connection.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_UPDATABLE);
                    ResultSet rows = statement.executeQuery("SELECT id, name FROM scrolled")) {
                while (rows.next()) {
                    if (rows.getInt("id") == 7) {
                        rows.updateString("name", "changed");
                        rows.updateRow();
                    } else if (rows.getInt("id") == 8) {
                        rows.deleteRow();
                    }
                }
                rows.moveToInsertRow();
                rows.updateInt("id", 21);
                rows.updateString("name", "inserted");
                rows.insertRow();
            }
            equal(one(connection, "SELECT count(*) FROM scrolled WHERE name IN ('changed', 'inserted')"), 2L);
            equal(one(connection, "SELECT count(*) FROM scrolled"), 20L);
            try (Statement statement = connection.createStatement()) {
                statement.setMaxRows(3);
                equal(column(statement.executeQuery("SELECT id FROM scrolled ORDER BY id"), "id"), List.of("1", "2", "3"));
            }
        });
        CHECKS.put("keys_are_given_for_inserted_rows", connection -> {
            run(connection, "CREATE TABLE keyed (id integer PRIMARY KEY, name text, made date DEFAULT DATE '2024-02-29')");
            try (PreparedStatement insert = connection.prepareStatement("INSERT INTO keyed VALUES (?, ?)", Statement.RETURN_GENERATED_KEYS)) {
                for (int id = 1; id <= 3; id++) {
                    insert.setInt(1, id);
                    insert.setString(2, "name " + id);
                    insert.addBatch();
                }
                equal(Arrays.toString(insert.executeBatch()), "[1, 1, 1]");
                equal(column(insert.getGeneratedKeys(), "made"), List.of("2024-02-29", "2024-02-29", "2024-02-29"));
            }
            try (Statement statement = connection.createStatement()) {
                statement.addBatch("UPDATE keyed SET name = 'x' WHERE id < 3");
                statement.addBatch("DELETE FROM keyed WHERE id = 3");
                statement.addBatch("UPDATE keyed SET name = 'y' WHERE id = 3");
                equal(Arrays.toString(statement.executeBatch()), "[2, 1, 0]");
                equal(statement.execute("SELECT 1 AS a; UPDATE keyed SET name = 'z'; SELECT 2 AS b"), true);
                equal(statement.getMoreResults(), false);
                equal(statement.getUpdateCount(), 2);
                equal(statement.getMoreResults(), true);
                equal(column(statement.getResultSet(), "b"), List.of("2"));
            }
        });
        CHECKS.put("streams_and_times_are_values", connection -> {
            run(connection, "CREATE TABLE streamed (id integer PRIMARY KEY, bytes bytea, words text, at time, moment timestamp, instant timestamptz, flag boolean)");
            byte[] bytes = new byte[100_000];
            new Random(7).nextBytes(bytes);
            Timestamp moment = Timestamp.valueOf("2024-02-29 12:34:56.789012");
            try (PreparedStatement insert = connection.prepareStatement("INSERT INTO streamed VALUES (?, ?, ?, ?, ?, ?, ?)")) {
                for (int id = 0; id < 7; id++) {
                    insert.setInt(1, id);
                    insert.setBinaryStream(2, new ByteArrayInputStream(bytes), bytes.length);
                    insert.setCharacterStream(3, new StringReader("größer".repeat(1000)));
                    insert.setObject(4, LocalTime.of(23, 59, 59));
                    insert.setTimestamp(5, moment);
                    insert.setTimestamp(6, moment, Calendar.getInstance(TimeZone.getTimeZone("UTC")));
                    insert.setObject(7, "true", Types.BOOLEAN);
                    insert.executeUpdate();
                }
            }
            try (PreparedStatement select = connection.prepareStatement("SELECT * FROM streamed WHERE id = ? AND moment = ? AND instant <= ?")) {
                for (int id = 0; id < 7; id++) {
                    select.setInt(1, id);
                    select.setTimestamp(2, moment);
                    select.setObject(3, OffsetDateTime.of(2024, 3, 1, 0, 0, 0, 0, ZoneOffset.UTC));
                    try (ResultSet row = select.executeQuery()) {
                        row.next();
                        equal(Arrays.equals(row.getBinaryStream(2).readAllBytes(), bytes), true);
                        equal(row.getString(3).length(), 6000);
                        equal(row.getObject(4, LocalTime.class), LocalTime.of(23, 59, 59));
                        equal(row.getTimestamp(5), moment);
                        equal(row.getObject(6, OffsetDateTime.class).toInstant(), Instant.parse("2024-02-29T12:34:56.789012Z"));
                        equal(row.getBoolean(7), true);
                    }
                }
            }
        });
        CHECKS.put("connections_behave_as_they_are_told", connection -> {
            String url = connection.getMetaData().getURL();
            for (String option : List.of("reWriteBatchedInserts=true", "preferQueryMode=simple", "prepareThreshold=1",
                    "preferQueryMode=extendedForPrepared", "binaryTransfer=false", "currentSchema=told", "autosave=always")) {
                try (Connection other = DriverManager.getConnection(url + (url.contains("?") ? "&" : "?") + "user=" + connection.getMetaData().getUserName() + "&" + option)) {
                    run(other, "CREATE SCHEMA IF NOT EXISTS told", "DROP TABLE IF EXISTS told.rows", "CREATE TABLE told.rows (id integer PRIMARY KEY, n bigint, t text)");
                    equal(other.isValid(1), true);
                    try (PreparedStatement insert = other.prepareStatement("INSERT INTO told.rows VALUES (?, ?, ?)")) {
                        for (int id = 0; id < 500; id++) {
                            insert.setInt(1, id);
                            insert.setLong(2, 1L << 40);
                            insert.setString(3, "it's \\ " + id);
                            insert.addBatch();
                        }
                        insert.executeBatch();
                    }
                    equal(one(other, "SELECT sum(n) FROM told.rows"), new BigDecimal(500L << 40));
                    other.setAutoCommit(false);
                    try (PreparedStatement select = other.prepareStatement("SELECT t FROM told.rows WHERE id BETWEEN ? AND ? ORDER BY id")) {
                        select.setFetchSize(7);
                        select.setInt(1, 10);
                        select.setInt(2, 30);
                        equal(column(select.executeQuery(), "t").size(), 21);
                    }
                    if (option.equals("autosave=always")) {
                        equal(stateOf(c -> run(c, "INSERT INTO told.rows VALUES (1)"), other), "23505");
                        equal(one(other, "SELECT 1"), 1);
                    }
                    other.rollback();
                    other.setSchema("told");
                    equal(other.getSchema(), "told");
                    other.commit();
                }
            }
            run(connection, "DROP SCHEMA told CASCADE");
        });
        CHECKS.put("metadata_describe_keys_and_types", connection -> {
            run(connection,
                "CREATE TABLE shop.sale (id integer PRIMARY KEY, item_id integer NOT NULL, item_part integer NOT NULL, day date, code char(3) UNIQUE,"
                    + " CONSTRAINT sale_item FOREIGN KEY (item_id, item_part) REFERENCES shop.item (id, part) ON DELETE CASCADE ON UPDATE SET NULL)",
                "COMMENT ON COLUMN shop.sale.day IS 'when it was sold'");
            DatabaseMetaData meta = connection.getMetaData();
            List<String> keys = new ArrayList<>();
            try (ResultSet rows = meta.getImportedKeys(null, "shop", "sale")) {
                while (rows.next()) {
                    keys.add(rows.getString("FK_NAME") + " " + rows.getString("FKCOLUMN_NAME") + " " + rows.getString("PKTABLE_NAME") + "."
                        + rows.getString("PKCOLUMN_NAME") + " " + rows.getInt("KEY_SEQ") + " " + rows.getInt("DELETE_RULE") + " " + rows.getInt("UPDATE_RULE")
                        + " " + rows.getString("PK_NAME") + " " + rows.getInt("DEFERRABILITY"));
                }
            }
            equal(keys, List.of("sale_item item_id item.id 1 0 2 item_pkey 7", "sale_item item_part item.part 2 0 2 item_pkey 7"));
            equal(column(meta.getExportedKeys(null, "shop", "item"), "FKTABLE_NAME"), List.of("sale", "sale"));
            equal(column(meta.getCrossReference(null, "shop", "item", null, "shop", "sale"), "FKCOLUMN_NAME"), List.of("item_id", "item_part"));
            equal(column(meta.getIndexInfo(null, "shop", "sale", true, true), "INDEX_NAME"), List.of("sale_code_key", "sale_pkey"));
            equal(column(meta.getBestRowIdentifier(null, "shop", "sale", DatabaseMetaData.bestRowSession, false), "COLUMN_NAME"), List.of("id"));
            equal(column(meta.getColumns(null, "shop", "sale", "d%"), "REMARKS"), List.of("when it was sold"));
            equal(column(meta.getColumns(null, "shop", "sale", "%"), "ORDINAL_POSITION"), List.of("1", "2", "3", "4", "5"));
            equal(column(meta.getTablePrivileges(null, "shop", "sale"), "PRIVILEGE").contains("SELECT"), true);
            equal(column(meta.getColumnPrivileges(null, "shop", "sale", "id"), "PRIVILEGE").contains("UPDATE"), true);
            equal(column(meta.getCatalogs(), "TABLE_CAT").contains(connection.getCatalog()), true);
            equal(column(meta.getTableTypes(), "TABLE_TYPE").containsAll(List.of("TABLE", "VIEW", "SYSTEM TABLE", "INDEX")), true);
            equal(column(meta.getTables(null, "pg_catalog", "pg_cl%", new String[] {"SYSTEM TABLE"}), "TABLE_NAME"), List.of("pg_class"));
            Map<String, Integer> types = new HashMap<>();
            try (ResultSet rows = meta.getTypeInfo()) {
                while (rows.next()) {
                    types.put(rows.getString("TYPE_NAME"), rows.getInt("DATA_TYPE"));
                }
            }
            equal(types.get("int8"), Types.BIGINT);
            equal(types.get("numeric"), Types.NUMERIC);
            equal(types.get("timestamptz"), Types.TIMESTAMP);
            equal(types.get("_text"), Types.ARRAY);
            equal(column(meta.getProcedures(null, "shop", "%"), "PROCEDURE_NAME"), List.of());
            equal(column(meta.getFunctions(null, "shop", "%"), "FUNCTION_NAME"), List.of());
            equal(column(meta.getUDTs(null, "shop", "%", new int[] {Types.DISTINCT}), "TYPE_NAME"), List.of());
            equal(meta.getSQLKeywords().contains("ilike"), true);
            equal(meta.getDatabaseMajorVersion(), 15);
            equal(meta.supportsTransactionIsolationLevel(Connection.TRANSACTION_REPEATABLE_READ), true);
            try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery("SELECT s.*, s.id + 1 AS next, 'a'::regtype FROM shop.sale s")) {
                throw new AssertionError("type a was found");
            } catch (SQLException error) {
                equal(error.getSQLState(), "42704");
            }
            try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery("SELECT s.*, s.id + 1 AS next, 'shop.sale'::regclass AS r FROM shop.sale s")) {
                ResultSetMetaData columns = rows.getMetaData();
                List<String> shown = new ArrayList<>();
                for (int at = 1; at <= columns.getColumnCount(); at++) {
                    shown.add(columns.getColumnLabel(at) + " " + columns.getColumnTypeName(at) + " " + columns.getTableName(at) + " " + columns.isNullable(at));
                }
                equal(shown, List.of("id int4 sale 0", "item_id int4 sale 0", "item_part int4 sale 0", "day date sale 1", "code bpchar sale 1", "next int4  2", "r regclass  2"));
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
