// node-postgres: pools, parameters, lists, prepared statements, transactions, cursors, streams, COPY, errors.
import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import pg from "pg";
import copy from "pg-copy-streams";
import Cursor from "pg-cursor";
import QueryStream from "pg-query-stream";

const url = process.argv[2];
const checks = {
  async values_come_back_as_they_went(client) {
    const { rows } = await client.query(
      `SELECT $1::boolean AS b, $2::int AS i, $3::bigint AS l, $4::double precision AS d, $5::numeric(10,2) AS n,
              $6::text AS t, $7::bytea AS y, $8::timestamptz AS z, $9::uuid AS u, $10::int AS nothing`,
      [true, -7, "9007199254740993", 0.5, "12.34", "größer", Buffer.from([0, 255]), new Date(0),
        "12345678-1234-5678-1234-567812345678", null]);
    assert.deepEqual(rows, [{
      b: true, i: -7, l: "9007199254740993", d: 0.5, n: "12.34", t: "größer", y: Buffer.from([0, 255]),
      z: new Date(0), u: "12345678-1234-5678-1234-567812345678", nothing: null,
    }]);
  },

  async named_statements_are_run_again(client) {
    for (let n = 0; n < 10; n++) {
      const { rows } = await client.query({ name: "add", text: "SELECT $1::int + 1 AS sum", values: [n] });
      assert.equal(rows[0].sum, n + 1);
    }
  },

  async a_failed_transaction_leaves_nothing(client) {
    await client.query("CREATE TABLE notes (id integer PRIMARY KEY, body text)");
    await client.query("BEGIN");
    await client.query("INSERT INTO notes VALUES ($1, $2)", [1, "one"]);
    const error = await client.query("INSERT INTO notes VALUES (1, 'again')").catch((error) => error);
    assert.equal(error.code, "23505");
    assert.equal(error.constraint, "notes_pkey");
    assert.equal(error.table, "notes");
    const after = await client.query("SELECT 1").catch((error) => error);
    assert.equal(after.code, "25P02");
    await client.query("ROLLBACK");
    assert.equal((await client.query("SELECT count(*)::int AS n FROM notes")).rows[0].n, 0);
  },

  async several_statements_in_one_message(client) {
    const results = await client.query("SELECT 1 AS a; INSERT INTO notes VALUES (2, 'two'); SELECT body FROM notes");
    assert.deepEqual(results.map((result) => result.command), ["SELECT", "INSERT", "SELECT"]);
    assert.equal(results[2].rows[0].body, "two");
  },

  async cursors_read_in_pieces(client) {
    const cursor = client.query(new Cursor("SELECT x FROM generate_series(1, $1::int) s(x)", [1000]));
    let sum = 0;
    for (let rows = await cursor.read(100); rows.length > 0; rows = await cursor.read(100)) {
      assert.equal(rows.length, 100);
      sum += rows.reduce((total, row) => total + row.x, 0);
    }
    await cursor.close();
    assert.equal(sum, 500500);
  },

  async arrays_are_parameters(client) {
    await client.query("INSERT INTO notes SELECT x, x::text FROM generate_series(10, 20) s(x)");
    const { rows } = await client.query("SELECT id FROM notes WHERE id = ANY($1::int[]) ORDER BY id", [[10, 15, 99]]);
    assert.deepEqual(rows.map((row) => row.id), [10, 15]);
  },

  async lists_of_all_types_go_both_ways(client) {
    const lists = {
      int: [1, null, -3], bigint: ["9007199254740993"], text: ["", "NULL", null, 'a "b" {c}, \\', "größer"], boolean: [true, false],
      "double precision": [0.5, -1e300], date: ["2024-02-29"], uuid: ["12345678-1234-5678-1234-567812345678"],
    };
    for (const [type, list] of Object.entries(lists)) {
      const { rows } = await client.query(`SELECT $1::${type}[]::text AS shown, $1::${type}[] AS list`, [list]);
      if (type !== "date") assert.deepEqual(rows[0].list, list, type);
      else assert.equal(rows[0].shown, "{2024-02-29}");
    }
    await client.query("CREATE TABLE bulk (id integer PRIMARY KEY, name text, at timestamptz)");
    const ids = Array.from({ length: 500 }, (_, n) => n);
    const inserted = await client.query(
      "INSERT INTO bulk SELECT * FROM unnest($1::int[], $2::text[], $3::timestamptz[])",
      [ids, ids.map((n) => `name ${n}`), ids.map((n) => new Date(n * 1000))]);
    assert.equal(inserted.rowCount, 500);
    const { rows } = await client.query("SELECT name, at FROM bulk WHERE id = ANY($1) AND name <> ALL($2) ORDER BY id", [[7, 8, 9], ["name 8"]]);
    assert.deepEqual(rows, [{ name: "name 7", at: new Date(7000) }, { name: "name 9", at: new Date(9000) }]);
    const removed = await client.query({ name: "remove", text: "DELETE FROM bulk WHERE id = ANY($1) RETURNING id", values: [[1, 2]] });
    assert.equal(removed.rows.length, 2);
  },

  async results_tell_their_columns(client) {
    await client.query("CREATE TABLE told (id integer PRIMARY KEY, name varchar(20), n numeric(8,2), c char(3), at date)");
    const { rowCount, fields, command } = await client.query("SELECT told.*, 'told'::regclass AS r, id + 1 AS next FROM told");
    assert.deepEqual([rowCount, command], [0, "SELECT"]);
    assert.deepEqual(fields.map((field) => [field.name, field.dataTypeID, field.dataTypeModifier, field.columnID]), [
      ["id", 23, -1, 1], ["name", 1043, 24, 2], ["n", 1700, 524294, 3], ["c", 1042, 7, 4], ["at", 1082, -1, 5], ["r", 2205, -1, 0], ["next", 23, -1, 0],
    ]);
    const { rows } = await client.query({ text: "SELECT 1 AS a, 2 AS a, NULL AS b", rowMode: "array" });
    assert.deepEqual(rows, [[1, 2, null]]);
    const binary = await client.query({ text: "SELECT 7 AS i, 'x' AS t, true AS b, $1::int AS p", values: [3], binary: true });
    assert.deepEqual(binary.rows, [{ i: 7, t: "x", b: true, p: 3 }]);
  },

  async upserts_and_returning(client) {
    await client.query("CREATE TABLE counters (name text PRIMARY KEY, n integer NOT NULL DEFAULT 0)");
    const upsert = "INSERT INTO counters (name, n) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET n = counters.n + excluded.n RETURNING n";
    for (const expected of [5, 10, 15]) {
      assert.equal((await client.query(upsert, ["a", 5])).rows[0].n, expected);
    }
    const updated = await client.query("UPDATE counters SET n = $1 WHERE name = $2 RETURNING *", [1, "a"]);
    assert.deepEqual(updated.rows, [{ name: "a", n: 1 }]);
    assert.equal((await client.query("UPDATE counters SET n = 2 WHERE name = 'nobody'")).rowCount, 0);
  },

  async transactions_of_two_clients(client) {
    const other = new pg.Client({ connectionString: url, application_name: "other" });
    await other.connect();
    await client.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
    const before = (await client.query("SELECT n FROM counters")).rows;
    await other.query("UPDATE counters SET n = 100");
    assert.deepEqual((await client.query("SELECT n FROM counters")).rows, before);
    const error = await client.query("UPDATE counters SET n = n + 1").catch((error) => error);
    assert.equal(error.code, "40001");
    await client.query("ROLLBACK");
    await client.query("BEGIN");
    await client.query("SELECT * FROM counters FOR UPDATE");
    const waiting = other.query("UPDATE counters SET n = n + 1 RETURNING n");
    await client.query("UPDATE counters SET n = 200");
    await client.query("COMMIT");
    assert.equal((await waiting).rows[0].n, 201);
    await other.end();
  },

  async errors_say_where_and_why(client) {
    const failures = {
      "SELECT nothing FROM notes": ["42703", "8"], "SELEC 1": ["42601", "1"], "SELECT * FROM nowhere": ["42P01", "15"],
      "SELECT 1 / 0": ["22012", undefined], "SELECT 'x'::int": ["22P02", "8"], "INSERT INTO notes (body) VALUES ('x')": ["23502", undefined],
      "SELECT nothing()": ["42883", "8"], "CREATE TABLE notes (id int)": ["42P07", undefined],
    };
    for (const [sql, [code, position]] of Object.entries(failures)) {
      const error = await client.query(sql).catch((error) => error);
      assert.deepEqual([sql, error.code, error.position, error.severity], [sql, code, position, "ERROR"]);
    }
  },

  async rows_are_copied_by_streams(client) {
    await client.query("CREATE TABLE copied (id integer PRIMARY KEY, name text)");
    const lines = Array.from({ length: 20_000 }, (_, n) => `${n}\tname ${n}\n`);
    await pipeline(Readable.from(lines), client.query(copy.from("COPY copied FROM STDIN")));
    const csv = client.query(copy.to("COPY (SELECT * FROM copied WHERE id < 3 ORDER BY id) TO STDOUT (FORMAT csv, HEADER)"));
    let text = "";
    for await (const chunk of csv) text += chunk;
    assert.equal(text, "id,name\n0,name 0\n1,name 1\n2,name 2\n");
    const error = await pipeline(Readable.from(["1\tagain\n"]), client.query(copy.from("COPY copied FROM STDIN"))).catch((error) => error);
    assert.equal(error.code, "23505");
    assert.equal((await client.query("SELECT count(*)::int AS n FROM copied")).rows[0].n, 20_000);
  },

  async rows_are_streamed(client) {
    let sum = 0;
    for await (const row of client.query(new QueryStream("SELECT id FROM copied WHERE id < $1 ORDER BY id", [5000], { batchSize: 64 }))) {
      sum += row.id;
    }
    assert.equal(sum, 12_497_500);
    const stream = client.query(new QueryStream("SELECT * FROM copied"));
    for await (const row of stream) if (row.id >= 0) break;
    assert.equal((await client.query("SELECT 1 AS a")).rows[0].a, 1);
  },

  async pools_share_connections() {
    const pool = new pg.Pool({ connectionString: url, max: 4 });
    const answers = await Promise.all(Array.from({ length: 50 }, (_, n) => pool.query("SELECT $1::int AS n", [n])));
    assert.deepEqual(answers.map((answer) => answer.rows[0].n), Array.from({ length: 50 }, (_, n) => n));
    await pool.end();
  },

  async statements_time_out() {
    const client = new pg.Client({ connectionString: url, statement_timeout: 200 });
    await client.connect();
    const error = await client.query("SELECT count(*) FROM generate_series(1, 2000000000) a(x) WHERE x % 7 = 3").catch((error) => error);
    assert.equal(error.code, "57014");
    await client.end();
  },
};

let failed = 0;
const client = new pg.Client({ connectionString: url });
await client.connect();
for (const [name, check] of Object.entries(checks)) {
  try {
    await check(client);
    console.log(`ok ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`failed ${name}\n${error.stack}`);
    await client.query("ROLLBACK").catch(() => {});
  }
}
await client.end();
process.exit(failed === 0 ? 0 : 1);
