-- every directive
\option rows 100 how many
\option name 'a''b' a text
\option ratio 0.5
\setup
\only mysql
CREATE TABLE t (id INT PRIMARY KEY, v INT, w VARCHAR(20));
\only postgres
CREATE TABLE t (id INT PRIMARY KEY, v INT, w TEXT);
\fill t (id, v, w) :rows * 2: :row, random_gaussian(1, 10, 3.0), letters(5)
\after
CREATE INDEX i ON t (v);
\check sum
SELECT count(*) = :rows * 2 FROM t;
\transaction one weight 3
\set a random(1, :rows)
BEGIN;
\name point
SELECT v FROM t WHERE id = :a;
\sleep 2 ms
UPDATE t SET v = v + 1 WHERE w = :name AND id = :session_id % 7;
COMMIT;
\transaction two
\set b int(:ratio * sqrt(:a))
\set e digits(3)
SELECT :b, :e, ':x' FROM t;
ROLLBACK;
