//! Quotas, states that outlive a mount, and other rare items.

use std::fmt;

use creamery_base::ObjectId;
use zerocopy::little_endian::U64;

use super::text::{Plain, civil};
use super::{DumpContext, Printed};
use crate::items::device::{RawDevReplace, RawDevStats};
use crate::items::free_space::RawFreeSpaceHeader;
use crate::items::qgroup::{RawQgroupInfo, RawQgroupLimit, RawQgroupStatus};
use crate::items::split;
use crate::items::state::{RawBalanceArgs, RawBalanceItem};
use crate::key::{Key, KeyType};
use crate::key_names;

/// Prints items of which a filesystem has a handful. Prints nothing for unknown types.
pub(super) fn item(w: &mut dyn fmt::Write, key: &Key, data: &[u8], context: &DumpContext) -> Printed {
    match key.kind {
        KeyType::UNTYPED if key.objectid == ObjectId::FREE_SPACE => free_space_header(w, data),
        KeyType::QGROUP_STATUS => qgroup_status(w, data, context),
        KeyType::QGROUP_INFO => qgroup_info(w, data),
        KeyType::QGROUP_LIMIT => qgroup_limit(w, data),
        KeyType::PERSISTENT_ITEM => persistent(w, key, data),
        KeyType::TEMPORARY_ITEM => temporary(w, key, data),
        KeyType::DEV_REPLACE => dev_replace(w, data, context),
        KeyType::STRING_ITEM => Ok(writeln!(w, "\t\titem data {}", Plain(data))?),
        _ => Ok(()),
    }
}

fn free_space_header(w: &mut dyn fmt::Write, data: &[u8]) -> Printed {
    let header = split::<RawFreeSpaceHeader>(data, "free space header")?.0;
    let RawFreeSpaceHeader { generation, num_entries, num_bitmaps, .. } = header;
    writeln!(w, "\t\tlocation key {}", Key::from(header.location))?;
    Ok(writeln!(w, "\t\tcache generation {generation} entries {num_entries} bitmaps {num_bitmaps}")?)
}

fn qgroup_status(w: &mut dyn fmt::Write, data: &[u8], context: &DumpContext) -> Printed {
    const NAMES: [(&str, u64); 3] = [("SIMPLE_MODE", 8), ("SCANNING", 2), ("INCONSISTENT", 4)];
    let (status, rest) = split::<RawQgroupStatus>(data, "quota status")?;
    let flags = status.flags.get();
    let on = if flags & 1 != 0 { "ON" } else { "OFF" };
    write!(w, "\t\tversion {} generation {} flags {on}", status.version, status.generation)?;
    for (name, bit) in NAMES {
        if flags & bit != 0 {
            write!(w, "|{name}")?;
        }
    }
    if flags & !0xf != 0 {
        write!(w, "|UNKNOWN(0x{:x})", flags & !0xf)?;
    }
    write!(w, " scan {}", status.rescan)?;
    if context.simple_quota && !rest.is_empty() {
        write!(w, " enable_gen {}", split::<U64>(rest, "quota status")?.0)?;
    }
    Ok(w.write_char('\n')?)
}

fn qgroup_info(w: &mut dyn fmt::Write, data: &[u8]) -> Printed {
    let info = split::<RawQgroupInfo>(data, "quota info")?.0;
    let RawQgroupInfo { referenced, referenced_compressed, exclusive, exclusive_compressed, .. } = info;
    writeln!(w, "\t\tgeneration {}", info.generation)?;
    writeln!(w, "\t\treferenced {referenced} referenced_compressed {referenced_compressed}")?;
    Ok(writeln!(w, "\t\texclusive {exclusive} exclusive_compressed {exclusive_compressed}")?)
}

fn qgroup_limit(w: &mut dyn fmt::Write, data: &[u8]) -> Printed {
    let limit = split::<RawQgroupLimit>(data, "quota limit")?.0;
    // Shown with a sign, unlike the usage numbers.
    let [max_referenced, max_exclusive, rsv_referenced, rsv_exclusive] =
        [limit.max_referenced, limit.max_exclusive, limit.rsv_referenced, limit.rsv_exclusive]
            .map(|number| number.get().cast_signed());
    writeln!(w, "\t\tflags {:x}", limit.flags.get())?;
    writeln!(w, "\t\tmax_referenced {max_referenced} max_exclusive {max_exclusive}")?;
    Ok(writeln!(w, "\t\trsv_referenced {rsv_referenced} rsv_exclusive {rsv_exclusive}")?)
}

fn persistent(w: &mut dyn fmt::Write, key: &Key, data: &[u8]) -> Printed {
    w.write_str("\t\tpersistent item objectid ")?;
    key_names::write_objectid(w, key.objectid, key.kind)?;
    writeln!(w, " offset {}", key.offset)?;
    if key.objectid.get() != 0 {
        return Ok(writeln!(w, "\t\tunknown persistent item objectid {}", key.objectid)?);
    }
    writeln!(w, "\t\tdevice stats")?;
    let RawDevStats { write_errs, read_errs, flush_errs, corruption_errs, generation } =
        split::<RawDevStats>(data, "device stats")?.0;
    Ok(writeln!(
        w,
        "\t\twrite_errs {write_errs} read_errs {read_errs} flush_errs {flush_errs} \
         corruption_errs {corruption_errs} generation {generation}"
    )?)
}

fn temporary(w: &mut dyn fmt::Write, key: &Key, data: &[u8]) -> Printed {
    w.write_str("\t\ttemporary item objectid ")?;
    key_names::write_objectid(w, key.objectid, key.kind)?;
    writeln!(w, " offset {}", key.offset)?;
    if key.objectid != ObjectId::BALANCE {
        return Ok(writeln!(w, "\t\tunknown temporary item objectid {}", key.objectid)?);
    }
    let balance = split::<RawBalanceItem>(data, "balance item")?.0;
    writeln!(w, "\t\tbalance status flags {}", balance.flags)?;
    for (name, args) in [("DATA", balance.data), ("METADATA", balance.meta), ("SYSTEM", balance.sys)] {
        writeln!(w, "\t\t{name}")?;
        balance_args(w, &args)?;
    }
    Ok(())
}

fn balance_args(w: &mut dyn fmt::Write, args: &RawBalanceArgs) -> fmt::Result {
    let halves = |number: u64| (number as u32, (number >> 32) as u32);
    let ((usage_min, usage_max), (limit_min, limit_max)) =
        (halves(args.usage.get()), halves(args.limit.get()));
    let RawBalanceArgs { profiles, devid, target, flags, pstart, pend, vstart, vend, .. } = args;
    writeln!(w, "\t\tprofiles {profiles} devid {devid} target {target} flags {flags}")?;
    writeln!(w, "\t\tusage_min {usage_min} usage_max {usage_max} pstart {pstart} pend {pend}")?;
    writeln!(w, "\t\tvstart {vstart} vend {vend} limit_min {limit_min} limit_max {limit_max}")?;
    writeln!(w, "\t\tstripes_min {} stripes_max {}", args.stripes_min, args.stripes_max)
}

fn dev_replace(w: &mut dyn fmt::Write, data: &[u8], context: &DumpContext) -> Printed {
    let replace = split::<RawDevReplace>(data, "device replacement")?.0;
    let RawDevReplace { src_devid, cursor_left, cursor_right, .. } = replace;
    write!(w, "\t\tsrc devid {src_devid} cursor left {cursor_left} cursor right {cursor_right} mode ")?;
    match replace.cont_reading_from_srcdev_mode.get() {
        0 => w.write_str("ALWAYS")?,
        1 => w.write_str("AVOID")?,
        mode => write!(w, "unknown({mode})")?,
    }
    w.write_str("\n\t\tstate ")?;
    match replace.replace_state.get() {
        0 => w.write_str("NEVER_STARTED")?,
        1 => w.write_str("STARTED")?,
        2 => w.write_str("FINISHED")?,
        3 => w.write_str("CANCELED")?,
        4 => w.write_str("SUSPENDED")?,
        state => write!(w, "unknown({state})")?,
    }
    let RawDevReplace { num_write_errors, num_uncorrectable_read_errors, .. } = replace;
    writeln!(
        w,
        " write errors {num_write_errors} uncorrectable read errors {num_uncorrectable_read_errors}"
    )?;
    // The original prints the start for both.
    let started = replace.time_started.get();
    let at = civil(started.cast_signed(), context.utc_offset);
    writeln!(w, "\t\tstart time {started} ({at})")?;
    Ok(writeln!(w, "\t\tstop time {started} ({at})")?)
}
