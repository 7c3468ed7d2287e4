-- Transfers between accounts: an example of a workload of one's own.
--
--   plimsoll bench studies/workloads/bank.sql --server mariadb -o accounts=100000
--
-- `plimsoll workloads studies/workloads/bank.sql` explains the directives.
\option accounts 1000 number of accounts

\setup
DROP TABLE IF EXISTS account;
DROP TABLE IF EXISTS journal;
CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, owner VARCHAR(20) NOT NULL);
\only mysql
CREATE TABLE journal (n BIGINT AUTO_INCREMENT PRIMARY KEY, amount BIGINT, note VARCHAR(40));
\only postgres
CREATE TABLE journal (n BIGSERIAL PRIMARY KEY, amount BIGINT, note VARCHAR(40));
\fill account (id, balance, owner) :accounts: :row, 100, letters(8)
\after
CREATE INDEX account_owner ON account (owner);
\check all accounts are there
SELECT COUNT(*) = :accounts FROM account;
\check balances add up
SELECT SUM(balance) = :accounts * 100 FROM account;

\transaction transfer weight 3
\set from random_zipfian(1, :accounts, 1.1)
\set to random(1, :accounts)
\set amount random(1, 20) * 2
\set note digits(12)
START TRANSACTION;
\name take
UPDATE account SET balance = balance - :amount WHERE id = :from;
\name give
UPDATE account SET balance = balance + :amount WHERE id = :to;
INSERT INTO journal (amount, note) VALUES (:amount, :note);
COMMIT;

\transaction look
\set id random_gaussian(1, :accounts, 3.0)
SELECT balance, owner FROM account WHERE id = :id;

\transaction regret
\set id random_exponential(1, :accounts, 5.0)
BEGIN;
UPDATE account SET balance = 0 WHERE id = :id;
\sleep 100 us
ROLLBACK;
