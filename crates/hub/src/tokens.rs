//! Tokens: who may submit, who may hide and who may measure again. Only hashes of them are kept.

use crate::db::{Db, Place, cells};
use crate::error::Error;
use crate::random;

/// What a token lets somebody do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Submit,
    Moderate,
    Measure,
}

impl Scope {
    /// As written.
    pub fn word(self) -> &'static str {
        match self {
            Scope::Submit => "submit",
            Scope::Moderate => "moderate",
            Scope::Measure => "measure",
        }
    }

    /// By its word.
    pub fn of_word(word: &str) -> Option<Scope> {
        [Scope::Submit, Scope::Moderate, Scope::Measure].into_iter().find(|scope| scope.word() == word)
    }
}

/// A token as it is listed: without itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub name: String,
    pub scopes: Vec<String>,
    /// Milliseconds since 1970.
    pub made_ms: i64,
    pub expires_ms: Option<i64>,
    pub revoked_ms: Option<i64>,
}

/// The tokens of a hub, for its keeper.
pub struct Tokens(Db);

/// What every token begins with, so that one that was leaked can be searched for.
const PREFIX: &str = "plimsoll_";

impl Tokens {
    /// Opens a hub's database.
    ///
    /// # Errors
    /// It cannot be had.
    pub fn open(place: &Place) -> Result<Tokens, Error> {
        Ok(Tokens(Db::open(place)?))
    }

    /// Makes a token and returns it: it is shown this once.
    ///
    /// # Errors
    /// There is one of that name already, or the database says no.
    pub fn add(
        &self,
        name: &str,
        scopes: &[Scope],
        expires_ms: Option<i64>,
        now_ms: i64,
    ) -> Result<String, Error> {
        if name.is_empty() || name.len() > 60 {
            return Err(Error::Wrong("a token's name has 1 to 60 characters".to_owned()));
        }
        if expires_ms.is_some_and(|at| at <= now_ms) {
            return Err(Error::Wrong("a token that has expired does nothing: give it longer".to_owned()));
        }
        let token = format!("{PREFIX}{}", random::word::<32>()?);
        let words: Vec<&str> = scopes.iter().map(|scope| scope.word()).collect();
        self.0.with(|sql| {
            sql.transaction(|sql| {
                if !sql.rows("SELECT name FROM token WHERE name = ?1", &[name.into()])?.is_empty() {
                    return Err(Error::Wrong(format!(
                        "there is a token {name} already: give it another name"
                    )));
                }
                let values = cells![name, hashed(&token), words.join(","), now_ms, expires_ms];
                sql.insert("token (name, sha256, scopes, made_ms, expires_ms)", &values)
            })
        })?;
        Ok(token)
    }

    /// All of them, oldest first.
    ///
    /// # Errors
    /// The database says no.
    pub fn list(&self) -> Result<Vec<Token>, Error> {
        let sentence =
            "SELECT name, scopes, made_ms, expires_ms, revoked_ms FROM token ORDER BY made_ms, name";
        let rows = self.0.with(|sql| sql.rows(sentence, &[]))?;
        let each = rows.iter().map(|row| Token {
            name: row.text(0),
            scopes: row.text(1).split(',').map(str::to_owned).collect(),
            made_ms: row.int(2),
            expires_ms: row.maybe_int(3),
            revoked_ms: row.maybe_int(4),
        });
        Ok(each.collect())
    }

    /// From now on it does nothing.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn revoke(&self, name: &str, now_ms: i64) -> Result<(), Error> {
        let sentence = "UPDATE token SET revoked_ms = ?2 WHERE name = ?1 AND revoked_ms IS NULL";
        match self.0.with(|sql| sql.execute(sentence, &[name.into(), now_ms.into()]))? {
            0 => Err(Error::Wrong(format!("there is no token {name} that could be revoked"))),
            _ => Ok(()),
        }
    }
}

fn hashed(token: &str) -> String {
    store::bundle::sha256(token.as_bytes())
}

/// The name of the token, if it may do this now.
pub(crate) fn allowed(db: &Db, token: &str, scope: Scope, now_ms: i64) -> Result<String, Error> {
    let sentence = "SELECT name, scopes, expires_ms, revoked_ms FROM token WHERE sha256 = ?1";
    let rows = db.with(|sql| sql.rows(sentence, &[hashed(token).into()]))?;
    let Some(row) = rows.first() else {
        return Err(Error::Forbidden("the hub does not know this token".to_owned()));
    };
    if row.maybe_int(3).is_some() {
        return Err(Error::Forbidden("this token was revoked".to_owned()));
    }
    if row.maybe_int(2).is_some_and(|expires| expires <= now_ms) {
        return Err(Error::Forbidden("this token has expired".to_owned()));
    }
    if !row.text(1).split(',').any(|word| word == scope.word()) {
        return Err(Error::Forbidden(format!("this token is not one to {} with", scope.word())));
    }
    Ok(row.text(0))
}
