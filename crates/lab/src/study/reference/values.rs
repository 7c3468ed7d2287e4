//! The tables that values of axes may be.

use super::{Section, key};

pub(super) const SERVER: Section = Section {
    name: "a server",
    about: "A server is a text, or a table where one is measured against itself.",
    keys: &[
        key(
            "server",
            "text, needed",
            "",
            "flavor[@version], a sandbox's name, or a URL",
            "server = \"mariadb@11.4\"",
        ),
        key("label", "text", "", "tells two entries of one server apart", "label = \"again\""),
    ],
};

pub(super) const SOURCE: Section = Section {
    name: "a server from source",
    about: "A commit of a clone, built before the first run (see builds-and-sandboxes.md): by an unprivileged user, without \
            network, once for each commit. Its value on the axis is what `ref` says, or the first ten digits of a commit \
            of `refs`. One that does not build has failed runs; the others go on.",
    keys: &[
        key("git", "path, needed", "", "the clone, in which nothing is changed", "git = \"../postgres\""),
        key("ref", "text", "", "a commit, by any name that git knows", "ref = \"REL_17_2\""),
        key(
            "refs",
            "text",
            "",
            "in its place, all commits after one up to another, along the first parents, oldest first",
            "refs = \"REL_17_1..REL_17_2\"",
        ),
        key(
            "recipe",
            "text",
            "",
            "how it is built: postgres, postgres-meson, mariadb, mysql, or a file; without it the sources say so",
            "recipe = \"postgres-meson\"",
        ),
        key("label", "text", "", "tells two entries of one commit apart", "label = \"again\""),
    ],
};

pub(super) const WORKLOAD: Section = Section {
    name: "a workload",
    about: "A workload is a text, or a table where it has options or a length of its own.",
    keys: &[
        key(
            "workload",
            "text, needed",
            "",
            "its name, or the path of a file",
            "workload = \"oltp_read_only\"",
        ),
        key(
            "pgbench",
            "text, or a list",
            "",
            "in its place, scripts of pgbench's: built-in ones, or paths; `@3` is a weight",
            "pgbench = [\"select-only@9\", \"simple-update\"]",
        ),
        key(
            "init",
            "text",
            "",
            "with `pgbench`, a file of SQL that makes the tables",
            "init = \"tables.sql\"",
        ),
        key("label", "text", "", "what the study calls it; its name without", "label = \"large\""),
        key("options", "table", "", "options of this entry alone; they win", "options = { tables = 4 }"),
        key("duration", "duration", "", "as in [load], for this entry", "duration = \"5s\""),
        key("transactions", "whole number", "", "as in [load], for this entry", "transactions = 1000"),
    ],
};

pub(super) const SETTINGS: Section = Section {
    name: "a set of settings",
    about: "A named set of server variables. The server's program is asked whether it takes them.",
    keys: &[
        key("name", "text, needed", "", "what the study calls it", "name = \"big-pool\""),
        key("profile", "safest, fast or unsafe", "", "durability to start from", "profile = \"fast\""),
        key(
            "logging",
            "none, general-file, general-table or binlog",
            "",
            "a logging variant",
            "logging = \"binlog\"",
        ),
        key("set", "table", "", "variables for every server", "set = { max_connections = 500 }"),
        key(
            "mysql",
            "table",
            "",
            "variables for MySQL, MariaDB and Percona Server",
            "mysql = { innodb_buffer_pool_size = \"4G\" }",
        ),
        key(
            "mariadb",
            "table",
            "",
            "variables for MariaDB, before those of `mysql`",
            "mariadb = { innodb_buffer_pool_size = \"5G\" }",
        ),
        key(
            "percona",
            "table",
            "",
            "variables for Percona Server, before those of `mysql`",
            "percona = { innodb_buffer_pool_size = \"5G\" }",
        ),
        key("postgres", "table", "", "variables for PostgreSQL", "postgres = { shared_buffers = \"4GB\" }"),
    ],
};

pub(super) const PLACE: Section = Section {
    name: "a place",
    about: "Where data directories are made, with limits of the device and of memory (cgroups). With `filesystem` the place \
            is made for the study and removed after it: an image of `size` bytes, all of them written before, on the \
            disk of `on`, through a loop device with direct I/O (as root). Mount options and scheduler are read back and \
            recorded with each run; the disk's scheduler is set while a run's server lives, and restored.",
    keys: &[
        key("name", "text, needed", "", "what the study calls it", "name = \"nvme\""),
        key(
            "datadir",
            "path, or tmpfs",
            "",
            "the directory under which data directories are made",
            "datadir = \"/mnt/nvme\"",
        ),
        key(
            "filesystem",
            "text",
            "",
            "a file system that is made: ext4, xfs or btrfs",
            "filesystem = \"ext4\"",
        ),
        key(
            "mount",
            "option, or a list",
            "",
            "mount options of a made file system",
            "mount = [\"noatime\", \"data=writeback\"]",
        ),
        key(
            "size",
            "number, or with k, M, G",
            "",
            "size of a made file system, at least 2G",
            "size = \"8G\"",
        ),
        key(
            "on",
            "path",
            "",
            "a directory on the disk that a made file system lies on, instead of Plimsoll's home",
            "on = \"/srv\"",
        ),
        key(
            "scheduler",
            "text",
            "",
            "I/O scheduler of the disk, where it lets itself be set",
            "scheduler = \"mq-deadline\"",
        ),
        key("read_iops", "number, or with k, M, G", "", "reads per second, at most", "read_iops = 500"),
        key("write_iops", "number, or with k, M, G", "", "writes per second, at most", "write_iops = 500"),
        key(
            "read_bytes_per_s",
            "number, or with k, M, G",
            "",
            "bytes read per second, at most",
            "read_bytes_per_s = \"64M\"",
        ),
        key(
            "write_bytes_per_s",
            "number, or with k, M, G",
            "",
            "bytes written per second, at most",
            "write_bytes_per_s = \"64M\"",
        ),
        key(
            "memory",
            "number, or with k, M, G",
            "",
            "memory of the server, page cache included",
            "memory = \"2G\"",
        ),
    ],
};

pub(super) const ENVIRONMENT: Section = Section {
    name: "an environment",
    about: "Variables of the server's process, and libraries that it is started with. Both are recorded with each run.",
    keys: &[
        key("name", "text, needed", "", "what the study calls it", "name = \"jemalloc\""),
        key("set", "table", "", "the variables", "set = { MALLOC_ARENA_MAX = \"2\" }"),
        key(
            "preload",
            "text, or a list",
            "",
            "libraries before its own: jemalloc, tcmalloc, mimalloc (Debian's packages), or paths; what is not loaded is an error",
            "preload = \"jemalloc\"",
        ),
    ],
};
