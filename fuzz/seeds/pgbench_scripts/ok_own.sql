\set n 1e3
\set t letters(10)
SELECT :n, :t;
