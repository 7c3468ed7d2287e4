//! What every workload draws for one seed, pinned: a change of the drawing shows here, and with it that figures do not
//! compare with earlier ones any more.

use std::collections::BTreeMap;

use super::{catalogue, dbstress, oltp, sysbench_0x, tpcb};
use crate::sqlfile::SqlFile;
use crate::{Dialect, Flavor, Version};

const BANK: &str = include_str!("../../../../studies/workloads/bank.sql");

const TEXTS: &str = r"\option who bob
\set n random(1, 5)
\set t letters(:n)
SELECT :t, :who, :session_id;
\sleep :n ms
\set d :n / 2.0
SELECT :d;
\sleep 1.5 us
";

type Case = (&'static str, &'static [(&'static str, &'static str)], u64, Option<u64>);

/// Workload, options, checksums on MySQL and PostgreSQL; `None` of options that PostgreSQL does not have. A new case has 0 until
/// the test has said what it draws.
const CASES: &[Case] = &[
    ("oltp_read_only", &[], 0xf521_49fb_96bf_aa9e, Some(0xf521_49fb_96bf_aa9e)),
    (
        "oltp_read_only",
        &[("tables", "7"), ("table_size", "3000000000"), ("rand_type", "zipfian")],
        0xca68_b7d2_05e0_c699,
        Some(0xca68_b7d2_05e0_c699),
    ),
    (
        "oltp_read_only",
        &[("skip_trx", "on"), ("range_selects", "off")],
        0x13b3_9eb5_27ea_3dbb,
        Some(0x13b3_9eb5_27ea_3dbb),
    ),
    ("oltp_read_write", &[], 0x5bc7_d18a_f5ac_6c87, Some(0x5bc7_d18a_f5ac_6c87)),
    (
        "oltp_read_write",
        &[("tables", "16"), ("table_size", "100000"), ("rand_type", "pareto"), ("index_updates", "3")],
        0x0236_a5d9_7e7c_806c,
        Some(0x0236_a5d9_7e7c_806c),
    ),
    (
        "oltp_read_write",
        &[("rand_type", "special"), ("point_selects", "0"), ("sum_ranges", "2")],
        0x1cf0_7915_0229_4252,
        Some(0x1cf0_7915_0229_4252),
    ),
    ("oltp_write_only", &[], 0x0048_61fc_e8cc_474d, Some(0x0048_61fc_e8cc_474d)),
    (
        "oltp_write_only",
        &[("delete_inserts", "3"), ("rand_type", "gaussian"), ("skip_trx", "on")],
        0x5449_e893_0ea5_0298,
        Some(0x5449_e893_0ea5_0298),
    ),
    ("oltp_point_select", &[("tables", "3")], 0x0e72_ec14_fac0_9b48, Some(0x0e72_ec14_fac0_9b48)),
    ("oltp_update_index", &[], 0x9035_604f_07ea_e20b, Some(0x9035_604f_07ea_e20b)),
    ("oltp_update_index", &[("index_updates", "2")], 0x06e5_4ce9_1459_96a4, Some(0x06e5_4ce9_1459_96a4)),
    ("oltp_update_non_index", &[], 0x5ced_dacb_f0f4_3499, Some(0x5ced_dacb_f0f4_3499)),
    ("oltp_insert", &[], 0x8061_35c3_0694_c24d, Some(0xaba0_0e5f_124b_c91d)),
    ("oltp_delete", &[], 0x2020_3222_75cf_be15, Some(0x2020_3222_75cf_be15)),
    ("select_random_points", &[], 0x1359_01a2_0cb5_96d9, Some(0x1359_01a2_0cb5_96d9)),
    ("select_random_points", &[("random_points", "40")], 0xa01f_985a_9de7_b0a4, Some(0xa01f_985a_9de7_b0a4)),
    ("select_random_ranges", &[], 0xdeab_0a10_bfba_02f9, Some(0xdeab_0a10_bfba_02f9)),
    (
        "select_random_ranges",
        &[("number_of_ranges", "3"), ("delta", "9")],
        0x54db_2ee0_3331_deed,
        Some(0x54db_2ee0_3331_deed),
    ),
    ("oltp_04", &[], 0xe3bd_02aa_b8fa_0a41, Some(0xe3bd_02aa_b8fa_0a41)),
    (
        "oltp_04",
        &[("test_mode", "nontrx"), ("nontrx_mode", "update_nokey")],
        0x4f31_aa8f_ec8b_e2fe,
        Some(0x4f31_aa8f_ec8b_e2fe),
    ),
    (
        "oltp_04",
        &[("test_mode", "nontrx"), ("nontrx_mode", "delete")],
        0x6c81_a727_739e_960c,
        Some(0x6c81_a727_739e_960c),
    ),
    ("oltp_04", &[("mysql_storage_engine", "myisam"), ("table_size", "150")], 0xe859_bbbf_48dd_7b95, None),
    (
        "oltp_04",
        &[("user_delay_min", "10"), ("user_delay_max", "90")],
        0x97f9_ce38_403b_28da,
        Some(0x97f9_ce38_403b_28da),
    ),
    ("oltp_05", &[("tables", "5")], 0xa984_3b5d_9792_b931, Some(0xa984_3b5d_9792_b931)),
    ("dbstress", &[], 0xe327_58c0_f82c_2ce9, Some(0xe327_58c0_f82c_2ce9)),
    ("dbstress", &[("rw", "1")], 0x2203_b6d8_3996_4ea1, Some(0x2203_b6d8_3996_4ea1)),
    (
        "dbstress",
        &[("rw", "3"), ("write_target", "random")],
        0x7231_1e9e_73bb_8ed4,
        Some(0x7231_1e9e_73bb_8ed4),
    ),
    ("catalogue", &[], 0x7846_60f0_856b_6c03, Some(0x7846_60f0_856b_6c03)),
    ("tpcb", &[], 0x3278_aea5_0825_767b, Some(0x3278_aea5_0825_767b)),
    ("tpcb", &[("home", "on"), ("scale", "3")], 0x132b_079d_3e31_4547, Some(0x132b_079d_3e31_4547)),
    ("tpcb", &[("variant", "simple_update")], 0xe909_752e_d3e0_75cf, Some(0xe909_752e_d3e0_75cf)),
    ("tpcb", &[("variant", "select_only")], 0x547e_6889_82d0_df0b, Some(0x547e_6889_82d0_df0b)),
    ("bank.sql", &[], 0x3570_179a_5ebc_b4bd, Some(0x3570_179a_5ebc_b4bd)),
    ("texts.sql", &[], 0x4c74_2530_0264_b8d3, Some(0x4c74_2530_0264_b8d3)),
];

fn drawn(name: &str, given: &BTreeMap<String, String>, dialect: Dialect) -> u64 {
    let file = |text| SqlFile::parse(name, text).expect("a good file");
    match name {
        "bank.sql" => file(BANK).drawn(given, dialect),
        "texts.sql" => file(TEXTS).drawn(given, dialect),
        "dbstress" => dbstress::drawn(given, dialect),
        "catalogue" => catalogue::drawn(given, dialect),
        "tpcb" => tpcb::drawn(given, dialect),
        "oltp_04" | "oltp_05" => sysbench_0x::drawn(name, given, dialect),
        _ => oltp::drawn(name, given, dialect),
    }
}

#[test]
fn what_is_drawn_is_pinned() {
    let hex = |sum: u64| {
        format!(
            "0x{:04x}_{:04x}_{:04x}_{:04x}",
            sum >> 48,
            sum >> 32 & 0xffff,
            sum >> 16 & 0xffff,
            sum & 0xffff
        )
    };
    let mut changed = Vec::new();
    for (name, pairs, mysql, postgres) in CASES {
        let given: BTreeMap<String, String> =
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let version = Version { major: 16, ..Version::default() };
        let of = |flavor| drawn(name, &given, Dialect { flavor, version, engine: None });
        let found = (of(Flavor::Mysql), postgres.map(|_| of(Flavor::Postgres)));
        if found != (*mysql, *postgres) {
            let postgres = found.1.map_or_else(|| "None".to_owned(), |sum| format!("Some({})", hex(sum)));
            changed.push(format!("(\"{name}\", &{pairs:?}, {}, {postgres}),", hex(found.0)));
        }
    }
    assert!(changed.is_empty(), "these draw something else, or are new:\n{}", changed.join("\n"));
}
