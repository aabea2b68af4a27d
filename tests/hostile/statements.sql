# 200 and more malformed or hostile statements. Each must get an error whose
# SQLSTATE is not XX000, and the server must answer the next query.
#
# Records are separated by lines of `----`. Lines starting with `#` at the top of
# a record are comments. A record that starts with `@setup` must succeed.
# Macros, expanded before sending:
#   @{N*text}    text, N times
#   @{N,text}    text, N times, joined by commas, `#` replaced by 1, 2, 3, …
#   @{hex:..}    these bytes
# What follows a line `@data` is sent as COPY data.
----
@setup
CREATE TABLE h (id integer PRIMARY KEY, s smallint, t text, v varchar(3), n numeric(5,2), d date, ts timestamp, b boolean, u uuid, y bytea, i interval, f double precision)
----
@setup
INSERT INTO h (id, s, t) VALUES (1, 1, 'x'), (2, 2, 'y')
----
@setup
CREATE VIEW hv AS SELECT id, t FROM h
----
@setup
CREATE TABLE two (a integer NOT NULL CHECK (a > 0), b text)
----
# --- the parser ---
SELEC 1
----
SELECT * FRM h
----
;SELECT
FROM WHERE
----
)
----
(((((
----
SELECT ((1)
----
SELECT 1))
----
SELECT 'unterminated
----
SELECT "unterminated
----
SELECT $tag$ unterminated
----
SELECT /* unterminated
----
SELECT E'\
----
SELECT U&'\00'
----
SELECT U&'\+110000'
----
SELECT E'\xff'
----
SELECT E'\u0000'
----
SELECT E'\ud800'
----
SELECT ""
----
SELECT * FROM ""
----
SELECT 1 FROM h WHERE
----
SELECT 1 GROUP BY
----
SELECT 1 ORDER
----
SELECT ,1
----
SELECT 1,,2
----
SELECT 1 AS
----
SELECT AS x
----
SELECT 1 2 3 4
----
SELECT * * FROM h
----
SELECT @@version
----
SELECT ? FROM h
----
SELECT :x
----
SELECT #
----
SELECT \
----
\d h
----
!
----
select select
----
INSERT INTO
----
INSERT INTO h
----
INSERT INTO h VALUES
----
INSERT INTO h VALUES (
----
INSERT INTO h VALUES 1, 2
----
UPDATE h
----
UPDATE h SET
----
UPDATE h SET id
----
UPDATE h SET id =
----
DELETE h
----
DELETE FROM
----
DELETE FROM h WHERE
----
CREATE
----
CREATE TABLE
----
CREATE TABLE x (
----
CREATE TABLE x (a)
----
CREATE TABLE x (integer)
----
CREATE TABLE x (a integer,)
----
CREATE TABLE x (a integer PRIMARY)
----
CREATE TABLE select (a integer)
----
DROP
----
ALTER
----
ALTER TABLE h
----
GRANT
----
EXPLAIN
----
EXPLAIN EXPLAIN SELECT 1
----
PREPARE
----
EXECUTE
----
WITH SELECT 1
----
WITH x AS () SELECT 1
----
VALUES
----
VALUES ()
----
SET
----
SHOW
----
COPY
----
SELECT CASE END
----
SELECT CASE WHEN 1=1 END
----
SELECT 1 IN (
----
SELECT 1 BETWEEN 2
----
SELECT NOT
----
SELECT CAST(1)
----
SELECT 1::
----
SELECT INTERVAL
----
SELECT DATE
----
SELECT extract(FROM now())
----
SELECT 1 FOR UPDATE OF
----
SELECT * FROM h JOIN
----
SELECT * FROM h JOIN two
----
SELECT * FROM h LEFT two ON true
----
SELECT count(*) OVER (
----
# --- bytes ---
SELECT '@{hex:ff}'
----
SELECT '@{hex:c0 80}'
----
SELECT '@{hex:ed a0 80}'
----
SELECT '@{hex:f5 80 80 80}'
----
SELECT '@{hex:e2 82}'
----
@{hex:ff fe fd fc}
----
INSERT INTO h (id, t) VALUES (3, '@{hex:80}')
----
SELECT @{hex:ef bb bf ff}
----
@{hex:01 02 03}
----
# --- nesting and size ---
SELECT @{10000*(}1@{10000*)}
----
SELECT @{10000*(}1
----
SELECT @{100000*(}1@{100000*)}
----
SELECT @{10000*NOT }nope
----
SELECT @{20000*- }nope
----
SELECT @{10000*abs(}1@{10000*)} + nope
----
SELECT @{5000*CASE WHEN true THEN }1@{5000* END}, nope
----
@{3000*SELECT * FROM (}SELECT 1@{3000*)}
----
SELECT * FROM h WHERE id IN @{3000*(SELECT id FROM h WHERE id IN }(1)@{3000*)}
----
SELECT @{200000*1+}nope
----
SELECT 1 WHERE @{50000*1=1 AND }nope
----
SELECT 'x' @{50000*|| 'x' } || nope
----
EXPLAIN @{2000*(}SELECT 1
----
CREATE TABLE wide (@{10000,c# integer})
----
CREATE TABLE wide (@{1700,c# text})
----
CREATE TABLE wide AS SELECT @{10000,# AS c#}
----
SELECT @{10000,nope#}
----
SELECT @{10000,#} FROM nope
----
INSERT INTO h VALUES (@{10000,#})
----
INSERT INTO h (@{10000,c#}) VALUES (1)
----
SELECT @{20000* x.}y
----
SELECT nope(@{10000,#})
----
CREATE TABLE h2 (PRIMARY KEY (@{2000,c#}), a integer)
----
SELECT '@{1000000*x}'::integer
----
SELECT @{100000*9}::bigint
----
SELECT @{1000*9}::numeric(38,0)
----
SELECT 1e@{1000*9}
----
SELECT "@{100000*x}"
----
CREATE TABLE t (a integer) WITH (layout = '@{100000*(}')
----
SELECT repeat('x', 1073741824)
----
SELECT repeat('x', 2147483647)
----
SELECT length(repeat(repeat('x', 1000000), 1000000))
----
INSERT INTO h (id, t) VALUES (3, repeat('x', 1073741824))
----
INSERT INTO h (id, t) SELECT 3, repeat('abcdefgh', 4000000)
----
SELECT lpad('x', 2000000000, 'y')
----
SELECT rpad('x', 2000000000)
----
# --- types, overflow ---
SELECT 9223372036854775807 + 1
----
SELECT -9223372036854775808 - 1
----
SELECT (-9223372036854775808)::bigint / -1
----
SELECT (-9223372036854775808)::bigint * -1
----
SELECT -((-9223372036854775808)::bigint)
----
SELECT abs((-9223372036854775808)::bigint)
----
SELECT 2147483647 + 1
----
SELECT 32767::smallint + 1::smallint
----
SELECT 70000::smallint
----
SELECT 'NaN'::float8::integer
----
SELECT 'Infinity'::float8::bigint
----
SELECT 1e308::float8 * 1e308::float8
----
SELECT 1 / 0
----
SELECT 1 % 0
----
SELECT 1.0 / 0
----
SELECT 1::float8 / 0::float8
----
SELECT sum(x) FROM (VALUES (9223372036854775807::bigint), (9223372036854775807)) AS v(x) HAVING sum(x)::bigint > 0
----
SELECT power(10::float8, 1000::float8)
----
SELECT 99999999999999999999999999999999999999::numeric(38,0) * 10
----
SELECT 'abc'::integer
----
SELECT ''::integer
----
SELECT '1;DROP TABLE h'::integer
----
SELECT 'maybe'::boolean
----
SELECT 'zzzz'::uuid
----
SELECT '\xq'::bytea
----
SELECT '2024-02-30'::date
----
SELECT '24:61'::time
----
SELECT 'yesterday-ish'::timestamp
----
SELECT '999999999999-01-01'::date
----
SELECT '1 fortnightly'::interval
----
SELECT '999999999999999999 years'::interval
----
SELECT DATE '2024-01-01' + 2147483647
----
SELECT TIMESTAMP '2024-01-01' + INTERVAL '999999 years'
----
SELECT '5'::numeric(2,5)
----
SELECT 5::numeric(1000,0)
----
SELECT 'x'::varchar(0)
----
SELECT 'x'::char(99999999999)
----
SELECT 1 + 'x'
----
SELECT true + true
----
SELECT 'a' LIKE 1
----
SELECT 'a' ~ '['
----
SELECT regexp_replace('a', '(', '')
----
SELECT 'a' ~ '(@{1000*(}a@{1000*)}){1000}{1000}'
----
SELECT ARRAY[1, 'x']
----
SELECT (1, 2) = (1, 2, 3)
----
SELECT chr(-5)
----
SELECT substring('x' FROM 1 FOR -5)
----
SELECT sqrt(-1)
----
SELECT ln(0)
----
SELECT to_char(now())
----
SELECT date_trunc('century of the fruitbat', now())
----
SELECT extract(flavour FROM now())
----
SELECT now() AT TIME ZONE 'Nowhere/City'
----
SELECT * FROM generate_series(1, 10, 0)
----
SELECT encode('\x00', 'nonsense')
----
SELECT decode('zz', 'hex')
----
SELECT convert_from('\xff', 'UTF8')
----
# --- wrong arguments, names, grouping ---
SELECT abs()
----
SELECT abs(1, 2, 3)
----
SELECT count()
----
SELECT count(1, 2)
----
SELECT nope()
----
SELECT nope.nope.nope.nope.nope
----
SELECT h.nope FROM h
----
SELECT * FROM nope.nope
----
SELECT * FROM a.b.c.d.e
----
SELECT id FROM h, h AS h2
----
SELECT * FROM h, h
----
SELECT t FROM h GROUP BY id / 0
----
SELECT id, count(*) FROM h
----
SELECT sum(count(*)) FROM h
----
SELECT * FROM h WHERE count(*) > 1
----
SELECT * FROM h ORDER BY 1000
----
SELECT * FROM h LIMIT -5
----
SELECT * FROM h LIMIT 'x'
----
SELECT * FROM h OFFSET -1
----
SELECT (SELECT id FROM h)
----
SELECT (SELECT id, t FROM h)
----
SELECT * FROM h WHERE id = (SELECT id FROM h)
----
SELECT 1 UNION SELECT 1, 2
----
SELECT 1 UNION SELECT 'x'::text
----
SELECT $1
----
SELECT $0
----
SELECT $99999999999
----
WITH RECURSIVE r AS (SELECT nope FROM r) SELECT * FROM r
----
WITH RECURSIVE r AS (SELECT * FROM r) SELECT * FROM r
----
SELECT row_number() FROM h
----
SELECT * FROM h WHERE row_number() OVER () = 1
----
SELECT chr(0)
----
SELECT 'abc' LIKE 'ab\'
----
SELECT * FROM generate_series(1)
----
# --- DML that must change nothing ---
INSERT INTO h VALUES (1)
----
INSERT INTO h VALUES (10), (1)
----
INSERT INTO h (id, s) VALUES (10, 99999)
----
INSERT INTO h (id, v) VALUES (10, 'too long')
----
INSERT INTO h (id, n) VALUES (10, 1000)
----
INSERT INTO h (nope) VALUES (1)
----
INSERT INTO h (id, id) VALUES (1, 1)
----
INSERT INTO hv VALUES (1, 'x')
----
INSERT INTO two VALUES (0, 'x')
----
INSERT INTO two VALUES (NULL, 'x')
----
UPDATE h SET id = 1
----
UPDATE h SET nope = 1
----
UPDATE h SET id = 'x'
----
UPDATE h SET s = s * 30000
----
UPDATE h SET id = 1 / (id - 1)
----
UPDATE h SET id = (SELECT id FROM h)
----
UPDATE hv SET nope = 'x'
----
DELETE FROM h WHERE id = 'x'
----
DELETE FROM h WHERE 1 / (id - 1) > 0
----
DELETE FROM h WHERE id = (SELECT id FROM h)
----
DELETE FROM nope
----
TRUNCATE nope
----
TRUNCATE hv
----
# --- DDL contradictions ---
CREATE TABLE h (a integer)
----
CREATE TABLE x (a integer, a integer)
----
CREATE TABLE x (a integer PRIMARY KEY, b integer PRIMARY KEY)
----
CREATE TABLE x (a integer, PRIMARY KEY (nope))
----
CREATE TABLE x (a nope)
----
CREATE TABLE x (a integer NULL NOT NULL)
----
CREATE TABLE x (a integer DEFAULT 'x')
----
CREATE TABLE x (a integer CHECK (nope > 1))
----
CREATE TABLE x (a integer CHECK (a + 1))
----
CREATE TABLE x (a integer) WITH (layout = 'zebra')
----
CREATE TABLE x (a integer) WITH (layout = '(a),(a)')
----
CREATE TABLE x (a integer) WITH (layout = '(b)')
----
CREATE TABLE x (a integer) WITH (layout = '')
----
CREATE TABLE x (a integer) WITH (nope = 1)
----
CREATE TABLE x (a numeric(99, 2))
----
CREATE TABLE x (a numeric(5, 9))
----
CREATE TABLE x (a varchar(0))
----
CREATE TABLE nope.x (a integer)
----
CREATE TABLE pg_catalog.x (a integer)
----
CREATE VIEW x AS SELECT 1 AS a, 2 AS a
----
CREATE VIEW h AS SELECT 1
----
CREATE VIEW x AS SELECT nope
----
CREATE VIEW x AS DELETE FROM h
----
DROP TABLE nope
----
DROP TABLE hv
----
DROP VIEW h
----
DROP SCHEMA public
----
DROP SCHEMA pg_catalog
----
DROP TABLE pg_catalog.pg_class
----
DELETE FROM pg_catalog.pg_class
----
UPDATE pg_catalog.pg_class SET relname = 'x'
----
INSERT INTO pg_catalog.pg_class (relname) VALUES ('x')
----
CREATE SCHEMA public
----
CREATE SCHEMA pg_evil
----
CREATE DATABASE aerostat
----
CREATE DATABASE x WITH (memory_max = '-5')
----
CREATE DATABASE x WITH (memory_max = '99999999999999999999GB')
----
CREATE DATABASE x WITH (nope = 1)
----
CREATE DATABASE ""
----
DROP DATABASE nope
----
DROP DATABASE aerostat
----
ALTER DATABASE nope WITH (memory_max = '1GB')
----
CREATE ROLE aerostat
----
DROP ROLE aerostat
----
DROP ROLE nope
----
CREATE INDEX i ON nope (x)
----
CREATE EXTENSION nope
----
CREATE FUNCTION f() RETURNS integer AS 'rm -rf /' LANGUAGE plpython
----
LOAD '/etc/passwd'
----
SELECT pg_read_file('/etc/passwd')
----
SELECT lo_import('/etc/passwd')
----
CREATE EXTERNAL TABLE evil STORED AS CSV LOCATION '/etc/passwd'
----
SELECT * FROM '/etc/passwd'
----
SELECT * FROM read_csv('/etc/passwd')
----
COPY h TO '/etc/evil'
----
COPY h FROM '/etc/passwd'
----
COPY h FROM PROGRAM 'id'
----
COPY (SELECT 1) TO 's3://bucket/x'
----
# --- COPY ---
COPY nope FROM STDIN
----
COPY h (nope) FROM STDIN
----
COPY h (id, id) FROM STDIN
----
COPY hv FROM STDIN
----
COPY h FROM STDIN WITH (FORMAT zebra)
----
COPY h FROM STDIN WITH (DELIMITER 'ab')
----
COPY h FROM STDIN WITH (DELIMITER E'\n')
----
COPY h FROM STDIN WITH (FORMAT binary, DELIMITER ',')
----
COPY h FROM STDIN WITH (QUOTE '"')
----
COPY h FROM STDIN WITH (FORMAT csv, QUOTE 'ab')
----
COPY h FROM STDIN WITH (NULL E'\n')
----
COPY h FROM STDIN WITH (FORMAT csv, FORMAT text)
----
COPY h FROM STDIN WITH (NOPE)
----
COPY h TO STDOUT WITH (FORCE_NULL (id))
----
COPY (DELETE FROM h) TO STDOUT
----
COPY (SELECT nope) TO STDOUT
----
COPY h (id) FROM STDIN
@data
1
----
COPY h (id) FROM STDIN
@data
abc
----
COPY h (id) FROM STDIN
@data
5	6
----
COPY h (id, t) FROM STDIN
@data
5
----
COPY h (id, t) FROM STDIN
@data
5	@{hex:ff fe}
----
COPY h (id, s) FROM STDIN
@data
5	99999999
----
COPY h (id, t) FROM STDIN WITH (FORMAT csv)
@data
5,"unterminated
----
COPY h (id, t) FROM STDIN WITH (FORMAT csv, HEADER match)
@data
x,y
5,z
----
COPY h (id, t) FROM STDIN WITH (FORMAT binary)
@data
this is no binary copy
----
COPY h (id) FROM STDIN WITH (FORMAT binary)
@data
@{hex:50 47 43 4f 50 59 0a ff 0d 0a 00 00 00 00 00 00 00 00 00 00 01 00 00 00 04 00}
----
COPY h (id) FROM STDIN WITH (FORMAT binary)
@data
@{hex:50 47 43 4f 50 59 0a ff 0d 0a 00 00 00 00 00 00 00 00 00 00 01 7f ff ff ff 00}
----
COPY two FROM STDIN
@data
0	x
----
COPY two FROM STDIN
@data
\N	x
----
# --- settings, transactions, prepared statements ---
SET nope = 1
----
SET statement_timeout = 'x'
----
SET timezone = 'Mars/Base'
----
SET client_encoding = 'KLINGON'
----
SET aerostat.default_layout = 'zebra'
----
SET aerostat.nope = 1
----
SHOW nope
----
SET ROLE nope
----
SAVEPOINT x
----
RELEASE x
----
ROLLBACK TO x
----
EXECUTE nope
----
DEALLOCATE nope
----
PREPARE p AS PREPARE q AS SELECT 1
----
PREPARE p AS SELECT nope
----
FETCH ALL FROM nope
----
CLOSE nope
----
LISTEN
----
LOCK TABLE nope
----
REINDEX TABLE nope
----
CALL nope()
----
DO 'nope'
----
SELECT pg_terminate_backend('x')
----
SELECT set_config('nope', 'x', false)
----
SELECT current_setting('nope')
----
SELECT 1; SELECT nope; SELECT 2
----
SELECT 1; SELEC 2
