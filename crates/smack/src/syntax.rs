//! The parsed form of a .smack file: plain data.

/// Where something stands in the source, for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// 1 for the first line.
    pub line: u32,
    /// 1 for the first character of a line.
    pub column: u32,
}

/// A whole file: sections in the order of the file (definitions precede use), then `main`.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    /// Definitions, in order. Tables act while the file is read, hence the order counts.
    pub sections: Vec<Section>,
    /// The statements of `main`.
    pub main: Vec<Statement>,
}

/// One definition.
#[derive(Debug, Clone, PartialEq)]
pub enum Section {
    /// `client "name" { ... }`
    Client(Client),
    /// `query "name" { ... }`
    Query(Query),
    /// `dictionary "name" { ... }`
    Dictionary(DictionarySource),
    /// `table "name" { ... }`
    Table(Table),
}

/// A kind of client: where it connects and what it fires each round.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Client {
    /// Name by which `main` and tables refer to it.
    pub name: String,
    /// Log-in name.
    pub user: String,
    /// Password.
    pub pass: String,
    /// Host name; `localhost` means the socket.
    pub host: String,
    /// Database.
    pub db: String,
    /// TCP port.
    pub port: Option<u16>,
    /// Socket path.
    pub socket: String,
    /// What one round consists of.
    pub barrel: Vec<Shot>,
    /// Where it is defined.
    pub place: Place,
}

/// One element of a query barrel.
#[derive(Debug, Clone, PartialEq)]
pub enum Shot {
    /// Run the query so many times.
    Fire {
        /// Times.
        count: u32,
        /// Name of the query.
        query: String,
    },
    /// Pause, in seconds (a negative number in the place of a count).
    Sleep { seconds: f64 },
}

/// A query and the statistics group that it counts in.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Query {
    pub name: String,
    /// Text, with `$dictionary` words where `parsed` is set.
    pub text: String,
    /// Statistics group (`type`); the name of the query where none is given.
    pub group: String,
    /// Whether it returns rows. Kept because files declare it; the protocols tell it by themselves.
    pub has_result_set: bool,
    /// Whether `$dictionary` is replaced.
    pub parsed: bool,
    /// Where it is defined.
    pub place: Place,
}

/// How words are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Draw {
    /// Any word, with equal chances.
    Random,
    /// One after the other, from the start again after the last.
    Sequence,
    /// The template with 0, 1, 2, ...
    Unique,
}

/// Where words come from.
#[derive(Debug, Clone, PartialEq)]
pub enum Words {
    /// Lines of a file in the data directory, up to the delimiter.
    File {
        /// Its name.
        path: String,
        /// Text up to it is the word.
        delimiter: Option<char>,
        /// Thin the file out: keep each n-th line, n = file size / this.
        size_equivalent: Option<u64>,
    },
    /// A comma-separated list.
    List(Vec<String>),
    /// A printf template with one integer field.
    Template(String),
}

/// A dictionary as defined.
#[derive(Debug, Clone, PartialEq)]
pub struct DictionarySource {
    /// Name; `$name` in queries.
    pub name: String,
    /// Order of words.
    pub draw: Draw,
    /// Origin of words.
    pub words: Words,
    /// Where it is defined.
    pub place: Place,
}

/// A table that is created and filled while the file is read, where it is missing or too small.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    pub name: String,
    /// Which client's connection makes it.
    pub client: String,
    /// CREATE TABLE statement.
    pub create: String,
    /// Fewer rows than this: dropped and made anew.
    pub min_rows: u64,
    /// File in the data directory with its rows, comma separated.
    pub data_file: String,
    /// Shell command whose output becomes that file where it is absent.
    pub gen_data_file: String,
    /// Where it is defined.
    pub place: Place,
}

/// A statement of `main`.
#[derive(Debug, Clone, PartialEq)]
pub enum Statement {
    /// `client.method(arguments);`
    Call {
        /// The client's name.
        client: String,
        method: Method,
        arguments: Vec<Expression>,
        /// Where.
        place: Place,
    },
    /// `$name = expression;`
    Assign {
        /// Variable without the dollar sign.
        name: String,
        value: Expression,
    },
}

/// What a client can be told in `main`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Starts this client's own course through `main`.
    Init,
    /// Rounds of the barrel for each instance.
    SetNumRounds,
    /// Starts instances and the clock.
    CreateThreads,
    /// Opens the connection.
    Connect,
    /// Fires the barrel, round after round.
    UnloadQueryBarrel,
    /// Waits for all instances, stops the clock, prints the report.
    CollectThreads,
    /// Closes the connection.
    Disconnect,
    /// Prints its argument.
    Print,
    /// Sleeps seconds and milliseconds.
    Sleep,
    /// Runs a statement.
    Query,
    /// Runs a named query and writes its rows to a file or, with `-`, to the output.
    RunSaveResult,
}

impl Method {
    /// All methods with their names and numbers of arguments.
    pub const ALL: [(&'static str, Method, usize); 11] = [
        ("init", Method::Init, 0),
        ("set_num_rounds", Method::SetNumRounds, 1),
        ("create_threads", Method::CreateThreads, 1),
        ("connect", Method::Connect, 0),
        ("unload_query_barrel", Method::UnloadQueryBarrel, 0),
        ("collect_threads", Method::CollectThreads, 0),
        ("disconnect", Method::Disconnect, 0),
        ("print", Method::Print, 1),
        ("sleep", Method::Sleep, 2),
        ("query", Method::Query, 1),
        ("run_save_result", Method::RunSaveResult, 2),
    ];

    /// What it takes in its place `index`, where that is a number; anything is a 0 elsewhere.
    ///
    /// # Errors
    /// It is none, or beyond what there can be; says what it takes.
    pub(crate) fn number(self, index: usize, text: &str) -> Result<u64, String> {
        let (least, most) = match (self, index) {
            (Method::CreateThreads, 0) => (1, 100_000),
            (Method::SetNumRounds, 0) => (1, u64::MAX),
            (Method::Sleep, _) => (0, u64::MAX),
            _ => return Ok(0),
        };
        let number = text.trim().parse::<f64>().ok();
        let number = number.filter(|number| *number >= least as f64 && *number <= most as f64);
        number.map(|number| number as u64).ok_or_else(|| {
            let name =
                Method::ALL.iter().find(|(_, method, _)| *method == self).map_or("", |(name, ..)| name);
            match most {
                u64::MAX => format!("{name} takes a number from {least} up"),
                _ => format!("{name} takes {least} to {most}"),
            }
        })
    }
}

/// A value in `main`.
#[derive(Debug, Clone, PartialEq)]
pub enum Expression {
    /// A number as written.
    Number(f64),
    Text(String),
    /// `$1`: an argument of the command line.
    Argument(usize),
    /// `$name`.
    Variable(String),
    /// `a . b`
    Concat(Box<Expression>, Box<Expression>),
    /// `client::max_connect_time` and its like.
    Connect(String, ConnectFigure),
    /// `client::group::num_queries` and its like.
    Group(String, String, GroupFigure),
}

/// Figures about connecting, in ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectFigure {
    /// Longest.
    Max,
    /// Shortest.
    Min,
    /// Mean.
    Avg,
}

/// Figures of a statistics group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupFigure {
    /// Queries run.
    NumQueries,
    /// Longest, in ms.
    MaxTime,
    /// Shortest, in ms.
    MinTime,
    /// Queries per second.
    QPerS,
}
