-- every command and kind of expression
\set a random(1, 10 * :scale) + random_zipfian(1, 9, 1.07)
\set b case when :a > 3 and not (:a = 4) then hash_murmur2(:a, 5) else abs(-:a) / 2 end
\set c (:a << 2) | 7 # 3 & ~1
\set d permute(:a % 10, 10, 42) + greatest(1, 2.5, pi())
\set e :a >= 1 \
 and :a != 2
\set f :a is null or :b isnull
\if :e
SELECT :a, ':b', $$ :c $$ /* ; */ FROM t WHERE x = "q;q" \gset p_
\elif :f
SELECT 1 \; SELECT :b \aset
\else
\sleep :a us
\endif
\startpipeline
UPDATE t SET v = :c WHERE id = :d;
\syncpipeline
\endpipeline
\setshell g echo :a
\shell true
\sleep 10 ms
END;
