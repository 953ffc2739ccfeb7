//! The whole program against the host's judges.
//!
//! Everything here drives the built `creamery` over its command line and lets the kernel, btrfs-progs and the tools of
//! daily work judge the result. It lives in the testkit's own tests folder because it needs no arrow to the engine:
//! what it tests is a program, not a crate.

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
mod direct_killed;
mod direct_qemu;
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
mod hostile_names;
mod hostile_trees;
mod hostile_writing;
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
mod quotas_damaged;
mod quotas_joined;
mod quotas_made;
mod random_work;
mod references;
mod report;
mod reproducible;
mod rescue;
mod rescue_commands;
mod rescue_lost;
mod rescue_named;
mod rescue_next;
mod rescue_options;
mod rescue_tools;
mod resize;
mod restore;
mod restore_words;
mod roles;
mod roles_rescuer;
mod scrub;
mod scrub_findings;
mod scrub_later;
mod scrub_left;
mod scrub_said;
mod seek;
mod seek_programs;
mod sets;
mod sets_read;
mod sets_shown;
mod sets_survey;
mod slips;
mod space_caches;
mod stats;
mod subvolumes;
mod subvolumes_beside_default;
mod subvolumes_controls;
mod subvolumes_killed;
mod subvolumes_live;
mod subvolumes_moved;
mod subvolumes_received;
mod subvolumes_told;
mod subvolumes_walked;
mod subvolumes_words;
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

use std::process::ExitCode;

use creamery_testkit::harness::Case;

/// Each file's cases, in the order in which they run but for those that say that they are long.
const GROUPS: &[fn() -> Vec<Case>] = &[
    help::cases,
    matrix::cases,
    sets::cases,
    scrub::cases,
    scrub_findings::cases,
    scrub_later::cases,
    scrub_left::cases,
    scrub_said::cases,
    sets_survey::cases,
    sets_read::cases,
    sets_shown::cases,
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
    direct_qemu::cases,
    direct_killed::cases,
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
    subvolumes_killed::cases,
    many_snapshots::cases,
    subvolumes_live::cases,
    subvolumes_beside_default::cases,
    subvolumes_controls::cases,
    subvolumes_moved::cases,
    subvolumes_received::cases,
    subvolumes_walked::cases,
    subvolumes_words::cases,
    subvolumes_told::cases,
    quotas::cases,
    quotas_damaged::cases,
    quotas_joined::cases,
    quotas_made::cases,
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
    rescue_commands::cases,
    rescue_lost::cases,
    rescue_named::cases,
    rescue_next::cases,
    rescue_options::cases,
    rescue_tools::cases,
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
    hostile_names::cases,
    hostile_trees::cases,
    hostile_writing::cases,
    history::cases,
    report::cases,
    host_targets::cases,
    host_trees::cases,
    damaged_subvolumes::cases,
];

fn main() -> ExitCode {
    creamery_testkit::harness::main(GROUPS.iter().flat_map(|cases| cases()).collect())
}
