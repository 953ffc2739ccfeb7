//! The whole program against the host's judges.
//!
//! Everything here drives the built `creamery` over its command line and lets the kernel, btrfs-progs and the tools of
//! daily work judge the result. It is a crate of its own because it needs no arrow to the engine: it tests a program, not a crate.
//! `tests/conformance.rs` runs the cases.

mod access_times;
mod allocation;
mod backup_roots;
mod bad_input;
mod callers;
mod callers_operations;
mod check;
mod clones;
mod commands;
mod compression;
mod compression_words;
mod cut_short;
mod damaged_subvolumes;
mod databases;
mod dead_mounts;
mod defragment;
mod delayed;
mod device_stats;
mod devices;
mod diff;
mod direct;
mod discard;
mod dup;
mod durable;
mod fiemap;
mod file_tools;
mod foreign;
mod fragmented;
mod freed;
mod full;
mod full_sizes;
mod help;
mod history;
mod host_targets;
mod host_trees;
mod hostile;
mod image_direct;
mod interrupted;
mod item_types;
mod json;
mod links;
mod listings;
mod live;
mod logs;
mod loss;
mod lying_extents;
mod many_snapshots;
mod mappings;
mod matrix;
mod mount_options;
mod nocow;
mod options;
mod partitions;
mod patterns;
mod populated;
mod posix;
mod quotas;
mod random_work;
mod references;
mod report;
mod reproducible;
mod rescue;
mod resize;
mod restore;
mod restore_words;
mod roles;
mod roles_rescuer;
mod scrub;
mod seek;
mod seek_programs;
mod sets;
mod slips;
mod space_caches;
mod stats;
mod subvolumes;
mod superblock_copies;
mod support;
mod tar;
mod tar_images;
mod tar_layers;
mod tree_log;
mod tree_log_full;
mod tune;
mod tune_uuid;
mod typed;
mod unmount_waits;
mod unmounts;
mod unprivileged;
mod unprivileged_first;
mod untouched;
mod work;
mod wrong_calls;

use creamery_testkit::harness::Case;

/// Each file's cases, in the order in which they run but for those that say that they are long.
const GROUPS: &[fn() -> Vec<Case>] = &[
    help::cases,
    matrix::cases,
    sets::cases,
    scrub::cases,
    scrub::findings::cases,
    scrub::later::cases,
    scrub::left::cases,
    scrub::said::cases,
    sets::survey::cases,
    sets::read::cases,
    sets::shown::cases,
    unmounts::cases,
    work::cases,
    defragment::cases,
    delayed::cases,
    fiemap::cases,
    foreign::cases,
    freed::cases,
    full::cases,
    full_sizes::cases,
    fragmented::cases,
    posix::cases,
    json::cases,
    links::cases,
    listings::cases,
    live::cases,
    device_stats::cases,
    logs::cases,
    mappings::cases,
    seek::cases,
    seek_programs::cases,
    slips::cases,
    space_caches::cases,
    nocow::cases,
    access_times::cases,
    allocation::cases,
    devices::cases,
    diff::cases,
    direct::cases,
    direct::qemu::cases,
    direct::killed::cases,
    discard::cases,
    dup::cases,
    reproducible::cases,
    options::cases,
    partitions::cases,
    mount_options::cases,
    tune::cases,
    tune_uuid::cases,
    typed::cases,
    unprivileged::cases,
    unprivileged_first::cases,
    dead_mounts::cases,
    unmount_waits::cases,
    callers::cases,
    commands::cases,
    file_tools::cases,
    tar::cases,
    tar_images::cases,
    tar_layers::cases,
    compression::cases,
    compression_words::cases,
    lying_extents::cases,
    check::cases,
    clones::cases,
    stats::cases,
    subvolumes::cases,
    patterns::cases,
    populated::cases,
    subvolumes::killed::cases,
    many_snapshots::cases,
    subvolumes::live::cases,
    subvolumes::beside_default::cases,
    subvolumes::controls::cases,
    subvolumes::moved::cases,
    subvolumes::received::cases,
    subvolumes::walked::cases,
    subvolumes::words::cases,
    subvolumes::told::cases,
    quotas::cases,
    quotas::damaged::cases,
    quotas::joined::cases,
    quotas::made::cases,
    references::cases,
    loss::cases,
    durable::cases,
    databases::cases,
    superblock_copies::cases,
    backup_roots::cases,
    tree_log::cases,
    tree_log_full::cases,
    bad_input::cases,
    cut_short::cases,
    rescue::cases,
    rescue::commands::cases,
    rescue::lost::cases,
    rescue::named::cases,
    rescue::next::cases,
    rescue::options::cases,
    rescue::tools::cases,
    restore::cases,
    restore_words::cases,
    resize::cases,
    roles::cases,
    image_direct::cases,
    interrupted::cases,
    untouched::cases,
    roles_rescuer::cases,
    wrong_calls::cases,
    hostile::cases,
    hostile::names::cases,
    hostile::trees::cases,
    hostile::writing::cases,
    history::cases,
    report::cases,
    host_targets::cases,
    host_trees::cases,
    damaged_subvolumes::cases,
];

/// All cases, as [`creamery_testkit::harness::main`] runs them.
#[must_use]
pub fn cases() -> Vec<Case> {
    GROUPS.iter().flat_map(|cases| cases()).collect()
}
