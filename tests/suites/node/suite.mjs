// node-postgres against the server of libpq's variables: its package ships no tests, so these are ours.
// Each test writes a line of JSON to SUITE_LINES.

import { appendFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import assert from 'node:assert/strict';

const require = createRequire(process.env.SUITE_MODULES + '/');
const pg = require('pg');
const LIMIT_MS = 15000;
const tests = [];
const test = (name, body) => tests.push([name, body]);

const line = (id, outcome, message = '') =>
  appendFileSync(process.env.SUITE_LINES, JSON.stringify({ id, outcome, message: message.slice(-600) }) + '\n');

async function withClient(body, options = {}) {
  const client = new pg.Client(options);
  client.on('error', () => {});
  await client.connect();
  try {
    return await body(client);
  } finally {
    await client.end().catch(() => {});
  }
}

const one = (text, values, options) =>
  withClient(async (client) => (await client.query({ text, values, ...options })).rows[0]);

// Values by the parser of their type.
for (const [sql, expected] of [
  ['1::int2', 1], ['2147483647::int4', 2147483647], ["'9223372036854775807'::int8", '9223372036854775807'],
  ['1.5::float4', 1.5], ["'NaN'::float8", NaN], ['1.50::numeric(5,2)', '1.50'], ['true', true], ["'a b'::text", 'a b'],
  ["'ab'::char(4)", 'ab  '], ["'x'::varchar(3)", 'x'], ['NULL::int', null], ["'{1,2,NULL}'::int4[]", [1, 2, null]],
  ["'{a,\"b c\"}'::text[]", ['a', 'b c']], ["ARRAY[true,false]", [true, false]], ["'{}'::int8[]", []],
  ["'\\x00ff'::bytea", Buffer.from([0, 255])], ["'12345678-1234-5678-1234-567812345678'::uuid", '12345678-1234-5678-1234-567812345678'],
  ["timestamptz '2024-02-29 12:00+00'", new Date('2024-02-29T12:00:00Z')], ["'{\"a\": [1]}'::json", { a: [1] }],
  ["'{\"a\": 1}'::jsonb", { a: 1 }], ["'12:30:01'::time", '12:30:01'], ["'(1,2)'::point", { x: 1, y: 2 }],
  ["'infinity'::float8", Infinity], ["current_setting('server_encoding')", 'UTF8'], ["'08:00:2b:01:02:03'::macaddr", '08:00:2b:01:02:03'],
]) {
  test(`value ${sql}`, async () => assert.deepEqual((await one(`SELECT ${sql} AS v`)).v, expected));
}
test('interval', async () => assert.equal((await one("SELECT interval '1 day 02:03' AS v")).v.days, 1));

// Parameters by the type that the server infers or the text says.
for (const [text, value, expected] of [
  ['$1::int', 5, 5], ['$1::text', 'é', 'é'], ['$1::bytea', Buffer.from('a'), Buffer.from('a')], ['$1::int[]', [1, 2], [1, 2]],
  ['$1::text[]', ['a', 'b"c', null], ['a', 'b"c', null]], ['$1::bool', true, true], ['$1::json', { a: 1 }, { a: 1 }],
  ['$1::timestamptz', new Date(0), new Date(0)], ['$1::float8', 0.1, 0.1], ['$1::numeric', '1.10', '1.10'], ['$1::text', null, null],
  ['coalesce($1, 3)', null, 3], ['$1 || $2::text', 'a', null], ["5 = ANY($1)", [5], true], ['$1::uuid', '12345678-1234-5678-1234-567812345678', '12345678-1234-5678-1234-567812345678'],
]) {
  const values = text.includes('$2') ? [value, 'b'] : [value];
  test(`parameter ${text}`, async () => assert.deepEqual((await one(`SELECT ${text} AS v`, values)).v, text.includes('$2') ? 'ab' : expected));
}
test('parameters in binary', async () => assert.equal((await one('SELECT $1::int4 AS v', [7], { binary: true })).v, 7));
test('rows as arrays', async () => withClient(async (c) => assert.deepEqual((await c.query({ text: 'SELECT 1, 2', rowMode: 'array' })).rows, [[1, 2]])));

test('several statements in one text', () => withClient(async (c) => {
  const results = await c.query('SELECT 1 AS a; SELECT 2 AS b; CREATE TEMP TABLE n (x int)');
  assert.deepEqual(results.map((r) => r.command), ['SELECT', 'SELECT', 'CREATE']);
}));
test('an empty text', () => withClient(async (c) => assert.equal((await c.query('')).command, null)));
test('a named statement twice', () => withClient(async (c) => {
  for (const v of [1, 2]) assert.equal((await c.query({ name: 'n', text: 'SELECT $1::int AS v', values: [v] })).rows[0].v, v);
}));
test('counts of commands', () => withClient(async (c) => {
  await c.query('CREATE TEMP TABLE t (id int PRIMARY KEY, v text)');
  const insert = await c.query("INSERT INTO t VALUES (1, 'a'), (2, 'b') RETURNING id");
  assert.deepEqual([insert.command, insert.rowCount, insert.rows.length], ['INSERT', 2, 2]);
  assert.equal((await c.query("UPDATE t SET v = 'c'")).rowCount, 2);
  assert.equal((await c.query('DELETE FROM t WHERE id = 1')).rowCount, 1);
}));
test('fields', () => withClient(async (c) => {
  const { fields } = await c.query('SELECT 1 AS a, now() AS b, \'x\'::varchar(7) AS c');
  assert.deepEqual(fields.map((f) => [f.name, f.dataTypeID]), [['a', 23], ['b', 1184], ['c', 1043]]);
  assert.equal(fields[2].dataTypeModifier, 11);
}));
test('fields name their table', () => withClient(async (c) => {
  await c.query('CREATE TEMP TABLE t (id int, v text)');
  const { fields } = await c.query('SELECT v, id FROM t');
  assert.deepEqual(fields.map((f) => f.columnID), [2, 1]);
  assert.notEqual(fields[0].tableID, 0);
}));
for (const [sql, code, field, value] of [
  ['SELECT * FROM nowhere', '42P01', 'routine', undefined], ['SELEC 1', '42601', 'position', '1'], ['SELECT 1/0', '22012', 'severity', 'ERROR'],
  ["INSERT INTO u VALUES (1), (1)", '23505', 'constraint', 'u_pkey'], ["INSERT INTO u VALUES (NULL)", '23502', 'column', 'id'],
  ["SELECT 'x'::int", '22P02', 'severity', 'ERROR'], ['SELECT nothing', '42703', 'position', '8'],
]) {
  test(`error ${sql}`, () => withClient(async (c) => {
    await c.query('CREATE TEMP TABLE u (id int PRIMARY KEY)');
    const error = await c.query(sql).then(() => assert.fail('no error'), (e) => e);
    assert.equal(error.code, code);
    if (value !== undefined) assert.equal(error[field], value);
    assert.equal((await c.query('SELECT 1 AS v')).rows[0].v, 1);
  }));
}
test('an error with parameters leaves the connection', () => withClient(async (c) => {
  await assert.rejects(c.query('SELECT $1::int', ['x']), { code: '22P02' });
  assert.equal((await c.query('SELECT $1::int AS v', [3])).rows[0].v, 3);
}));
test('a transaction that failed', () => withClient(async (c) => {
  await c.query('BEGIN');
  await assert.rejects(c.query('SELECT 1/0'));
  await assert.rejects(c.query('SELECT 1'), { code: '25P02' });
  await c.query('ROLLBACK');
  assert.equal((await c.query('SELECT 1 AS v')).rows[0].v, 1);
}));
test('notices', () => withClient(async (c) => {
  const notices = [];
  c.on('notice', (n) => notices.push(n.code));
  await c.query('DROP TABLE IF EXISTS not_there');
  assert.deepEqual(notices, ['00000']);
}));
test('LISTEN and NOTIFY', () => withClient(async (c) => {
  const heard = new Promise((done) => c.on('notification', done));
  await c.query('LISTEN channel');
  await c.query("NOTIFY channel, 'said'");
  assert.equal((await heard).payload, 'said');
}));
test('many rows', () => withClient(async (c) => assert.equal((await c.query('SELECT * FROM generate_series(1, 20000) AS n')).rows.length, 20000)));
test('a long text', () => withClient(async (c) => assert.equal((await c.query('SELECT $1::text AS v', ['x'.repeat(1_000_000)])).rows[0].v.length, 1_000_000)));
test('queued queries', () => withClient(async (c) => {
  const results = await Promise.all([1, 2, 3, 4].map((v) => c.query('SELECT $1::int AS v', [v])));
  assert.deepEqual(results.map((r) => r.rows[0].v), [1, 2, 3, 4]);
}));
test('a pool', async () => {
  const pool = new pg.Pool({ max: 4 });
  const results = await Promise.all(Array.from({ length: 40 }, (_, v) => pool.query('SELECT $1::int AS v', [v])));
  assert.equal(results.length, 40);
  await pool.end();
});
test('a statement timeout', () => withClient(async (c) => {
  await assert.rejects(c.query('SELECT pg_sleep(5)'), { code: '57014' });
}, { statement_timeout: 100 }));
test('options of the start', () => withClient(async (c) => {
  assert.equal((await c.query('SHOW application_name')).rows[0].application_name, 'suite');
  assert.equal((await c.query('SHOW TimeZone')).rows[0].TimeZone, 'Asia/Tokyo');
}, { application_name: 'suite', options: '-c TimeZone=Asia/Tokyo' }));
test('cancel by a second connection', () => withClient(async (c) => {
  const slow = c.query('SELECT pg_sleep(10)');
  const id = c.processID;
  await withClient(async (other) => other.query('SELECT pg_cancel_backend($1)', [id]));
  await assert.rejects(slow, { code: '57014' });
}));
test('savepoints', () => withClient(async (c) => {
  await c.query('CREATE TEMP TABLE s (id int)');
  for (const sql of ['BEGIN', 'INSERT INTO s VALUES (1)', 'SAVEPOINT a', 'INSERT INTO s VALUES (2)', 'ROLLBACK TO a', 'COMMIT']) await c.query(sql);
  assert.equal((await c.query('SELECT count(*) FROM s')).rows[0].count, '1');
}));
test('upsert', () => withClient(async (c) => {
  await c.query('CREATE TEMP TABLE p (id int PRIMARY KEY, v int DEFAULT 0)');
  const sql = 'INSERT INTO p VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET v = p.v + excluded.v RETURNING *';
  await c.query(sql, [1, 2]);
  assert.deepEqual((await c.query(sql, [1, 3])).rows, [{ id: 1, v: 5 }]);
}));

const chosen = process.env.SUITE_SAMPLE ? tests.slice(0, 30) : tests;
for (const [name, body] of chosen) {
  let timer;
  const late = new Promise((_, fail) => { timer = setTimeout(() => fail(new Error('timeout')), LIMIT_MS); });
  try {
    await Promise.race([body(), late]);
    line(name, 'passed');
  } catch (error) {
    line(name, 'failed', `${error.code ?? ''} ${error.message}`);
  }
  clearTimeout(timer);
}
process.exit(0);
