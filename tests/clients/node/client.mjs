// node-postgres: pools, parameters, prepared statements, transactions, cursors, errors.
import assert from "node:assert/strict";
import pg from "pg";
import Cursor from "pg-cursor";

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
