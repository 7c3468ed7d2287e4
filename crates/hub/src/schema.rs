//! The hub's tables, for both databases, and the way from any older version to them. A migration is never edited once a
//! release has made tables with it.

use report::bundle::ListedClaim;
use report::history::PointOfSeries;
use serde_json::Value;

use crate::accept;
use crate::db::{Sql, cells};
use crate::error::Error;
use crate::standing::{count_all, has_verdict};

type Migration = fn(&mut Sql) -> Result<(), Error>;

/// Each entry takes the tables from version `index` to `index + 1`.
const MIGRATIONS: [Migration; 6] = [
    |sql| sql.batch(V1),
    |sql| sql.batch(V2),
    |sql| {
        sql.batch(V3)?;
        with_series(sql)?;
        if let Sql::Sqlite(_) = sql { sql.batch(V3_SQLITE) } else { Ok(()) }
    },
    |sql| {
        sql.batch(V4)?;
        with_audits(sql)
    },
    |sql| sql.batch(V5),
    |sql| {
        sql.batch(V6)?;
        with_submitters_and_verdicts(sql)?;
        count_all(sql)
    },
];

/// Times are milliseconds since 1970. What a page shows of a bundle is in `listing` (JSON); what is searched, counted and
/// ordered has columns of its own.
const V1: &str = "
CREATE TABLE bundle (
  id TEXT PRIMARY KEY, -- SHA-256 of the file
  received_ms BIGINT NOT NULL, measured_ms BIGINT NOT NULL, token TEXT NOT NULL,
  is_hidden BIGINT NOT NULL, hidden_why TEXT NOT NULL,
  study TEXT NOT NULL, shape TEXT NOT NULL, bytes BIGINT NOT NULL, figures BIGINT NOT NULL,
  words TEXT NOT NULL, -- lower case
  head TEXT NOT NULL, -- JSON: what lists show of it
  listing TEXT NOT NULL -- JSON
);
CREATE INDEX bundle_received ON bundle (is_hidden, received_ms);
CREATE TABLE claim (
  bundle_id TEXT NOT NULL REFERENCES bundle (id), ordinal BIGINT NOT NULL, id TEXT NOT NULL,
  host TEXT NOT NULL, claim TEXT NOT NULL, -- JSON
  PRIMARY KEY (bundle_id, ordinal)
);
CREATE INDEX claim_id ON claim (id);
CREATE TABLE standing (
  claim_id TEXT PRIMARY KEY, text TEXT NOT NULL, bundle_id TEXT NOT NULL,
  bundles BIGINT NOT NULL, hosts BIGINT NOT NULL,
  reproduced BIGINT NOT NULL, contradicted BIGINT NOT NULL, undecided BIGINT NOT NULL
);
CREATE INDEX standing_proven ON standing (reproduced);
CREATE TABLE host (
  fingerprint TEXT NOT NULL, bundle_id TEXT NOT NULL REFERENCES bundle (id), host TEXT NOT NULL, -- JSON
  PRIMARY KEY (fingerprint, bundle_id)
);
CREATE TABLE server (
  name TEXT NOT NULL, bundle_id TEXT NOT NULL REFERENCES bundle (id), PRIMARY KEY (name, bundle_id)
);
CREATE TABLE point (
  bundle_id TEXT NOT NULL REFERENCES bundle (id), ordinal BIGINT NOT NULL, flavor TEXT NOT NULL, metric TEXT NOT NULL,
  point TEXT NOT NULL, -- JSON
  PRIMARY KEY (bundle_id, ordinal)
);
CREATE INDEX point_flavor ON point (flavor, metric);
CREATE TABLE file (
  bundle_id TEXT NOT NULL, kind TEXT NOT NULL, bytes BYTEA NOT NULL, PRIMARY KEY (bundle_id, kind)
);
CREATE TABLE token (
  name TEXT PRIMARY KEY, sha256 TEXT NOT NULL UNIQUE, scopes TEXT NOT NULL,
  made_ms BIGINT NOT NULL, expires_ms BIGINT, revoked_ms BIGINT
);
";

/// Claims that are measured again by workers of the hub. A bundle may be asked for again: the newest that has ended is what
/// lists show, in `head` of its bundle.
const V2: &str = "
CREATE TABLE remeasurement (
  id TEXT PRIMARY KEY, bundle_id TEXT NOT NULL REFERENCES bundle (id),
  claim_id TEXT NOT NULL, -- drawn by the hub; empty where there was none to draw
  claim TEXT NOT NULL, -- JSON, as published
  asked_ms BIGINT NOT NULL, asked_by TEXT NOT NULL, -- policy or moderator
  state TEXT NOT NULL, -- waiting, leased, done, refused, failed
  attempts BIGINT NOT NULL, -- leases that were given
  lease TEXT NOT NULL, worker TEXT NOT NULL, lease_until_ms BIGINT NOT NULL,
  ended_ms BIGINT, outcome TEXT NOT NULL -- JSON
);
CREATE INDEX remeasurement_open ON remeasurement (state, asked_ms);
CREATE INDEX remeasurement_bundle ON remeasurement (bundle_id, asked_ms);
";

/// What pages ask for at 10,000 bundles has an index; histories are read by series, of which a page has a few.
const V3: &str = "
DROP INDEX bundle_received;
CREATE INDEX bundle_newest ON bundle (is_hidden, received_ms DESC, id);
CREATE INDEX bundle_shape ON bundle (shape, received_ms);
CREATE INDEX standing_disputed ON standing (contradicted);
CREATE INDEX remeasurement_claim ON remeasurement (claim_id, asked_ms);
ALTER TABLE remeasurement ADD COLUMN needs_s BIGINT NOT NULL DEFAULT 0; -- a worker's budget, found too short before
DROP INDEX point_flavor;
ALTER TABLE point ADD COLUMN series TEXT NOT NULL DEFAULT '';
CREATE INDEX point_series ON point (series);
CREATE TABLE series (
  id TEXT PRIMARY KEY, flavor TEXT NOT NULL, metric TEXT NOT NULL,
  label TEXT NOT NULL, -- lower case
  points BIGINT NOT NULL -- of bundles that are shown
);
CREATE INDEX series_longest ON series (flavor, metric, points DESC, id);
";

/// A search that finds little reads all words: from here a tenth of what it would read from the rows. PostgreSQL's indices do
/// not take texts of any length.
const V3_SQLITE: &str = "CREATE INDEX bundle_words ON bundle (is_hidden, received_ms DESC, id, words)";

/// Runs are known again under whatever seal they come, and decisions about changes come with whoever made them. Standings
/// count machines, not bundles. Bundles of older versions have neither: nobody opens them for that.
const V4: &str = "
CREATE TABLE run_mark (
  run TEXT NOT NULL, bundle_id TEXT NOT NULL REFERENCES bundle (id), host TEXT NOT NULL, PRIMARY KEY (run, bundle_id)
);
CREATE TABLE decision (
  bundle_id TEXT NOT NULL REFERENCES bundle (id), ordinal BIGINT NOT NULL,
  decided_ms BIGINT NOT NULL, decision TEXT NOT NULL, -- JSON
  PRIMARY KEY (bundle_id, ordinal)
);
CREATE TABLE audit (
  id TEXT NOT NULL, -- SHA-256 of what it found: the same audit is sealed with each study of its results
  bundle_id TEXT NOT NULL REFERENCES bundle (id), server TEXT NOT NULL, audit TEXT NOT NULL, -- JSON
  PRIMARY KEY (id, bundle_id)
);
CREATE INDEX audit_server ON audit (server);
ALTER TABLE hub_version ADD COLUMN changes BIGINT NOT NULL DEFAULT 0; -- of what pages show
DROP INDEX standing_proven;
CREATE INDEX standing_proven ON standing (reproduced DESC, contradicted, claim_id);
DROP INDEX standing_disputed;
CREATE INDEX standing_disputed ON standing (contradicted DESC, claim_id);
";

/// A bundle's page has its audits.
const V5: &str = "CREATE INDEX audit_bundle ON audit (bundle_id)";

/// Standings count submitters and machines, and what has a verdict.
const V6: &str = "
ALTER TABLE bundle ADD COLUMN signer TEXT NOT NULL DEFAULT ''; -- fingerprint of the key that signed it
ALTER TABLE claim ADD COLUMN has_verdict BIGINT NOT NULL DEFAULT 0;
ALTER TABLE standing ADD COLUMN submitters BIGINT NOT NULL DEFAULT 0;
";

fn with_submitters_and_verdicts(sql: &mut Sql) -> Result<(), Error> {
    for bundle in sql.rows("SELECT id, head FROM bundle", &[])? {
        let head: Value = serde_json::from_str(&bundle.text(1))?;
        let Some(signer) = head["signer"].as_str() else { continue };
        let named = "UPDATE bundle SET signer = ?2 WHERE id = ?1";
        sql.execute(named, &[bundle.text(0).into(), signer.into()])?;
    }
    for row in sql.rows("SELECT bundle_id, ordinal, claim FROM claim", &[])? {
        let claim: ListedClaim = serde_json::from_str(&row.text(2))?;
        let said = "UPDATE claim SET has_verdict = ?3 WHERE bundle_id = ?1 AND ordinal = ?2";
        let values = [row.text(0).into(), row.int(1).into(), i64::from(has_verdict(&claim)).into()];
        sql.execute(said, &values)?;
    }
    Ok(())
}

/// Gives points of older versions their series.
fn with_series(sql: &mut Sql) -> Result<(), Error> {
    for bundle in sql.rows("SELECT id, is_hidden FROM bundle", &[])? {
        let id = bundle.text(0);
        let points =
            sql.rows("SELECT ordinal, point FROM point WHERE bundle_id = ?1", &[id.clone().into()])?;
        for row in points {
            let point: PointOfSeries = serde_json::from_str(&row.text(1))?;
            let named = "UPDATE point SET series = ?3 WHERE bundle_id = ?1 AND ordinal = ?2";
            sql.execute(named, &[id.clone().into(), row.int(0).into(), point.group().into()])?;
            if bundle.int(1) == 0 {
                count_point(sql, &point)?;
            }
        }
    }
    Ok(())
}

/// Takes audits out of the listings of older versions.
fn with_audits(sql: &mut Sql) -> Result<(), Error> {
    for bundle in sql.rows("SELECT id FROM bundle ORDER BY received_ms, id", &[])? {
        let id = bundle.text(0);
        for row in sql.rows("SELECT listing FROM bundle WHERE id = ?1", &[id.clone().into()])? {
            let listing: Value = serde_json::from_str(&row.text(0))?;
            for audit in listing["audits"].as_array().into_iter().flatten() {
                accept::insert_audit(sql, &id, audit)?;
            }
        }
    }
    Ok(())
}

/// One more point of its series.
pub(crate) fn count_point(sql: &mut Sql, point: &PointOfSeries) -> Result<(), Error> {
    let label = point.group_label().to_lowercase();
    let values = cells![point.group(), flavor_of(point), point.metric.clone(), label];
    sql.execute(
        "INSERT INTO series (id, flavor, metric, label, points) VALUES (?1, ?2, ?3, ?4, 1)
         ON CONFLICT (id) DO UPDATE SET points = series.points + 1",
        &values,
    )
    .map(drop)
}

pub(crate) fn flavor_of(point: &PointOfSeries) -> &str {
    let server = point.key.get("server").and_then(Value::as_str).unwrap_or_default();
    server.split('@').next().unwrap_or_default()
}

/// Brings the tables to this version; several hubs may begin at once.
pub(crate) fn migrate(sql: &mut Sql) -> Result<(), Error> {
    sql.transaction(|sql| {
        sql.batch("CREATE TABLE IF NOT EXISTS hub_version (version BIGINT NOT NULL)")?;
        let found = sql.rows("SELECT version FROM hub_version", &[])?;
        let version = found.first().map_or(0, |row| row.int(0)).max(0) as usize;
        if version > MIGRATIONS.len() {
            return Err(Error::Database(format!(
                "its tables have version {version}, this plimsoll knows up to {}: serve it with a newer one",
                MIGRATIONS.len()
            )));
        }
        MIGRATIONS[version..].iter().try_for_each(|migration| migration(sql))?;
        if version == MIGRATIONS.len() {
            return Ok(());
        }
        // What else the row has stays: pages are kept by the number of changes, which never goes back.
        let sentence = match found.is_empty() {
            true => "INSERT INTO hub_version (version) VALUES (?1)",
            false => "UPDATE hub_version SET version = ?1",
        };
        sql.execute(sentence, &[(MIGRATIONS.len() as i64).into()]).map(drop)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{Db, Place};

    #[test]
    fn tables_of_the_first_version_get_what_is_new_and_keep_what_they_have() {
        let mut sql = Sql::Sqlite(rusqlite::Connection::open_in_memory().unwrap());
        migrates_from_the_first(&mut sql);
    }

    #[test]
    fn so_do_those_in_postgresql() {
        let Some(server) = sandbox::testing::server("postgres") else { return };
        let db = Db::new(&Place::Postgres(Box::new(server.target(None))));
        let checked = db.with(|sql| {
            migrates_from_the_first(sql);
            Ok(())
        });
        checked.unwrap();
    }

    fn migrates_from_the_first(sql: &mut Sql) {
        sql.batch("CREATE TABLE hub_version (version BIGINT NOT NULL); INSERT INTO hub_version VALUES (1)")
            .unwrap();
        sql.batch(V1).unwrap();
        let token = "INSERT INTO token (name, sha256, scopes, made_ms) VALUES ('ada', 'x', 'submit', 1)";
        sql.batch(token).unwrap();
        for (id, hidden) in [("a", 0), ("b", 0), ("c", 1)] {
            let point = serde_json::json!({
                "key": {"server": format!("mariadb@10.11.{hidden}"), "study": "Tiny"}, "boundary": "m", "record": [0, 1],
                "metric": "tps",
                "point": {"build": "", "identity": "", "at_ms": 1, "value": 1.0, "low": 1.0, "high": 1.0, "runs": [],
                          "file": "", "host": ""},
            });
            sql.batch(&format!(
                "INSERT INTO bundle VALUES ('{id}', 1, 1, 't', {hidden}, '', 's', 's', 1, 1, 'w', '{{}}', '{{}}');
                 INSERT INTO point VALUES ('{id}', 0, 'mariadb', 'tps', '{point}')"
            ))
            .unwrap();
        }
        let signed = "UPDATE bundle SET head = '{\"signer\": \"key\"}' WHERE id = 'b'";
        sql.batch(signed).unwrap();
        for (bundle, verdict) in [("a", "undecided"), ("b", "faster")] {
            let claim = serde_json::json!({
                "id": "c1", "metric": "tps", "text": "b against a", "base": {}, "other": {}, "verdict": verdict,
                "ratio": 2.0, "low": 1.98, "high": 2.02, "margin": 0.05, "is_primary": true, "host": bundle,
            });
            sql.batch(&format!("INSERT INTO claim VALUES ('{bundle}', 0, 'c1', '{bundle}', '{claim}')"))
                .unwrap();
        }
        migrate(sql).unwrap();
        migrate(sql).unwrap();
        assert_eq!(sql.rows("SELECT version FROM hub_version", &[]).unwrap()[0].int(0), 6);
        assert_eq!(sql.rows("SELECT name FROM token", &[]).unwrap()[0].text(0), "ada");
        assert!(sql.rows("SELECT id FROM remeasurement", &[]).unwrap().is_empty());
        let series = sql.rows("SELECT flavor, label, points FROM series", &[]).unwrap();
        assert_eq!(series.len(), 1);
        let found = (series[0].text(0), series[0].text(1), series[0].int(2));
        assert_eq!(found, ("mariadb".to_owned(), "tiny · mariadb".to_owned(), 2));
        assert!(sql.rows("SELECT ordinal FROM point WHERE series = ''", &[]).unwrap().is_empty());
        // The first one with a verdict, and who signed it.
        let standing = sql.rows("SELECT bundle_id, bundles, submitters FROM standing", &[]).unwrap();
        assert_eq!((standing[0].text(0), standing[0].int(1), standing[0].int(2)), ("b".to_owned(), 2, 1));
        assert_eq!(sql.rows("SELECT id FROM bundle WHERE signer = 'key'", &[]).unwrap()[0].text(0), "b");
        sql.batch("UPDATE hub_version SET version = 7").unwrap();
        assert!(migrate(sql).unwrap_err().to_string().contains("newer"));
    }
}
