//! The tables that values of axes may be.

use super::{Section, key};

pub(super) const SERVER: Section = Section {
    name: "a server",
    about: "A server is a text, or a table where one is measured against itself.",
    keys: &[
        key("server = \"mariadb@11.4\"", "text, needed", "flavor[@version], a sandbox's name, or a URL"),
        key("label = \"again\"", "text", "tells two entries of one server apart"),
    ],
};

pub(super) const SOURCE: Section = Section {
    name: "a server from source",
    about: "A commit of a clone, built before the first run (see builds-and-sandboxes.md): by an unprivileged user, without \
            network, once for each commit. Its value on the axis is what `ref` says, or the first ten digits of a commit \
            of `refs`. One that does not build has failed runs; the others go on.",
    keys: &[
        key("git = \"../postgres\"", "path, needed", "the clone, in which nothing is changed"),
        key("ref = \"REL_17_2\"", "text", "a commit, by any name that git knows"),
        key(
            "refs = \"REL_17_1..REL_17_2\"",
            "text",
            "in its place, all commits after one up to another, along the first parents, oldest first",
        ),
        key(
            "recipe = \"postgres-meson\"",
            "text",
            "how it is built: postgres, postgres-meson, mariadb, mysql, or a file; without it the sources say so",
        ),
        key("label = \"again\"", "text", "tells two entries of one commit apart"),
    ],
};

pub(super) const WORKLOAD: Section = Section {
    name: "a workload",
    about: "A workload is a text, or a table where it has options or a length of its own.",
    keys: &[
        key("workload = \"oltp_read_only\"", "text, needed", "its name, or the path of a file"),
        key(
            "pgbench = [\"select-only@9\", \"simple-update\"]",
            "text, or a list",
            "in its place, scripts of pgbench's: built-in ones, or paths; `@3` is a weight",
        ),
        key("init = \"tables.sql\"", "text", "with `pgbench`, a file of SQL that makes the tables"),
        key("label = \"large\"", "text", "what the study calls it; its name without"),
        key("options = { tables = 4 }", "table", "options of this entry alone; they win"),
        key("duration = \"5s\"", "duration", "as in [load], for this entry"),
        key("transactions = 1000", "whole number", "as in [load], for this entry"),
    ],
};

pub(super) const SETTINGS: Section = Section {
    name: "a set of settings",
    about: "A named set of server variables. The server's program is asked whether it takes them.",
    keys: &[
        key("name = \"big-pool\"", "text, needed", "what the study calls it"),
        key("profile = \"fast\"", "safest, fast or unsafe", "durability to start from"),
        key("logging = \"binlog\"", "none, general-file, general-table or binlog", "a logging variant"),
        key("set = { max_connections = 500 }", "table", "variables for every server"),
        key(
            "mysql = { innodb_buffer_pool_size = \"4G\" }",
            "table",
            "variables for MySQL, MariaDB and Percona Server",
        ),
        key(
            "mariadb = { innodb_buffer_pool_size = \"5G\" }",
            "table",
            "variables for MariaDB, before those of `mysql`",
        ),
        key(
            "percona = { innodb_buffer_pool_size = \"5G\" }",
            "table",
            "variables for Percona Server, before those of `mysql`",
        ),
        key("postgres = { shared_buffers = \"4GB\" }", "table", "variables for PostgreSQL"),
    ],
};

pub(super) const PLACE: Section = Section {
    name: "a place",
    about: "Where data directories are made, with limits of the device and of memory (cgroups). With `filesystem` the place \
            is made for the study and removed after it: an image of `size` bytes, all of them written before, on the \
            disk of `on`, through a loop device with direct I/O (as root). Mount options and scheduler are read back and \
            recorded with each run; the disk's scheduler is set while a run's server lives, and restored.",
    keys: &[
        key("name = \"nvme\"", "text, needed", "what the study calls it"),
        key(
            "datadir = \"/mnt/nvme\"",
            "path, or tmpfs",
            "the directory under which data directories are made",
        ),
        key("filesystem = \"ext4\"", "text", "a file system that is made: ext4, xfs or btrfs"),
        key(
            "mount = [\"noatime\", \"data=writeback\"]",
            "option, or a list",
            "mount options of a made file system",
        ),
        key("size = \"8G\"", "number, or with k, M, G", "size of a made file system, at least 2G"),
        key(
            "on = \"/srv\"",
            "path",
            "a directory on the disk that a made file system lies on, instead of Plimsoll's home",
        ),
        key("scheduler = \"mq-deadline\"", "text", "I/O scheduler of the disk, where it lets itself be set"),
        key("read_iops = 500", "number, or with k, M, G", "reads per second, at most"),
        key("write_iops = 500", "number, or with k, M, G", "writes per second, at most"),
        key("read_bytes_per_s = \"64M\"", "number, or with k, M, G", "bytes read per second, at most"),
        key("write_bytes_per_s = \"64M\"", "number, or with k, M, G", "bytes written per second, at most"),
        key("memory = \"2G\"", "number, or with k, M, G", "memory of the server, page cache included"),
    ],
};

pub(super) const ENVIRONMENT: Section = Section {
    name: "an environment",
    about: "Variables of the server's process, and libraries that it is started with. Both are recorded with each run.",
    keys: &[
        key("name = \"jemalloc\"", "text, needed", "what the study calls it"),
        key("set = { MALLOC_ARENA_MAX = \"2\" }", "table", "the variables"),
        key(
            "preload = \"jemalloc\"",
            "text, or a list",
            "libraries before its own: jemalloc, tcmalloc, mimalloc (Debian's packages), or paths; what is not loaded is an error",
        ),
    ],
};
