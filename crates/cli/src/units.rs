//! Units of printed sizes, with the options and the digits of btrfs-progs.

use clap::Args;

/// How to show sizes. Of two that contradict each other the later one counts.
#[derive(Args, Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "one for each option")]
pub(crate) struct UnitArgs {
    /// Bytes.
    #[arg(long, overrides_with_all = ["human_readable", "iec", "si", "kbytes", "mbytes", "gbytes", "tbytes"])]
    raw: bool,

    /// A unit that suits each size; powers of 1024; the default.
    #[arg(long, overrides_with_all = ["raw", "iec", "si", "kbytes", "mbytes", "gbytes", "tbytes"])]
    human_readable: bool,

    /// Powers of 1024: KiB, MiB, GiB, TiB.
    #[arg(long, overrides_with_all = ["raw", "si"])]
    iec: bool,

    /// Powers of 1000: kB, MB, GB, TB.
    #[arg(long, overrides_with_all = ["raw", "iec"])]
    si: bool,

    /// KiB, or kB with --si.
    #[arg(long, overrides_with_all = ["raw", "mbytes", "gbytes", "tbytes"])]
    kbytes: bool,

    /// MiB, or MB with --si.
    #[arg(long, overrides_with_all = ["raw", "kbytes", "gbytes", "tbytes"])]
    mbytes: bool,

    /// GiB, or GB with --si.
    #[arg(long, overrides_with_all = ["raw", "kbytes", "mbytes", "tbytes"])]
    gbytes: bool,

    /// TiB, or TB with --si.
    #[arg(long, overrides_with_all = ["raw", "kbytes", "mbytes", "gbytes"])]
    tbytes: bool,
}

/// The letters that some commands have for the same. Where there is one, the words for it do not count, but --si.
#[derive(Args, Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "one for each option")]
pub(crate) struct UnitLetters {
    /// As --raw.
    #[arg(short = 'b')]
    bytes: bool,

    /// As --human-readable.
    #[arg(short = 'h')]
    human: bool,

    /// As --si.
    #[arg(short = 'H')]
    human_si: bool,

    /// As --kbytes.
    #[arg(short = 'k')]
    kilo: bool,

    /// As --mbytes.
    #[arg(short = 'm')]
    mega: bool,

    /// As --gbytes.
    #[arg(short = 'g')]
    giga: bool,

    /// As --tbytes.
    #[arg(short = 't')]
    tera: bool,
}

impl UnitLetters {
    /// Combines these options with `words`.
    pub(crate) fn or(&self, words: &UnitArgs) -> UnitArgs {
        let Self { bytes, human, human_si, kilo, mega, giga, tera } = *self;
        if !(bytes || human || human_si || kilo || mega || giga || tera) {
            return words.clone();
        }
        UnitArgs {
            raw: bytes,
            human_readable: human,
            iec: false,
            si: human_si || words.si,
            kbytes: kilo,
            mbytes: mega,
            gbytes: giga,
            tbytes: tera,
        }
    }
}

impl UnitArgs {
    /// Whether each size gets a suitable unit, by powers of 1024.
    pub(crate) const fn are_usual(&self) -> bool {
        !(self.raw || self.si || self.kbytes || self.mbytes || self.gbytes || self.tbytes)
    }

    /// Formats `bytes` by the options.
    pub(crate) fn show(&self, bytes: u64) -> String {
        const IEC: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        const SI: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
        if self.raw {
            return bytes.to_string();
        }
        let (base, names) = if self.si { (1000_u64, SI) } else { (1024, IEC) };
        let wanted = [self.kbytes, self.mbytes, self.gbytes, self.tbytes].iter().position(|&wanted| wanted);
        let Some(power) = wanted.map(|index| index + 1) else {
            let power = (1..names.len()).take_while(|&power| bytes >= base.pow(power as u32)).count();
            // The part below the next smaller unit is cut off before rounding, and the quotient has 24 bits.
            let (below, unit) =
                if power == 0 { (bytes, 1) } else { (bytes / base.pow(power as u32 - 1), base) };
            return format!("{:.2}{}", below as f32 / unit as f32, names[power]);
        };
        // Hundredths, in integers: exact at any size. Ties go to the even one, as in printf.
        let (all, unit) = (u128::from(bytes) * 100, u128::from(base.pow(power as u32)));
        let (whole, rest) = (all / unit, all % unit * 2);
        let hundredths = whole + u128::from(rest > unit || (rest == unit && whole % 2 == 1));
        format!("{}.{:02}{}", hundredths / 100, hundredths % 100, names[power])
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches};

    use super::*;

    /// The output of btrfs-progs 6.14.
    #[test]
    fn sizes_are_shown_as_btrfs_shows_them() {
        let bytes = [0, 1023, 2_117_632, 8_998_912, 262_144, u64::MAX];
        // 209.7152 MB, formatted as in btrfs-progs.
        assert_eq!(UnitArgs { si: true, ..UnitArgs::default() }.show(209_715_200), "209.71MB");
        let rows = [
            ("", ["0.00B", "1023.00B", "2.02MiB", "8.58MiB", "256.00KiB", "16.00EiB"]),
            ("--raw", ["0", "1023", "2117632", "8998912", "262144", "18446744073709551615"]),
            ("--si", ["0.00B", "1.02kB", "2.12MB", "9.00MB", "262.14kB", "18.45EB"]),
            ("--raw --si", ["0.00B", "1.02kB", "2.12MB", "9.00MB", "262.14kB", "18.45EB"]),
            ("--si --raw", ["0", "1023", "2117632", "8998912", "262144", "18446744073709551615"]),
            (
                "--kbytes --si",
                ["0.00kB", "1.02kB", "2117.63kB", "8998.91kB", "262.14kB", "18446744073709551.62kB"],
            ),
            ("--mbytes", ["0.00MiB", "0.00MiB", "2.02MiB", "8.58MiB", "0.25MiB", "17592186044416.00MiB"]),
            (
                "--kbytes --gbytes",
                ["0.00GiB", "0.00GiB", "0.00GiB", "0.01GiB", "0.00GiB", "17179869184.00GiB"],
            ),
        ];
        for (options, want) in rows {
            let words = ["du"].into_iter().chain(options.split_whitespace());
            let found = UnitArgs::augment_args(Command::new("du")).get_matches_from(words);
            let units = UnitArgs::from_arg_matches(&found).expect("options that there are");
            assert_eq!(bytes.map(|bytes| units.show(bytes)), want, "{options}");
        }
    }
}
