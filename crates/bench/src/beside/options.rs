//! The options that benches have in common.

use anyhow::{Context, Result, bail};

/// What the words after the command's name say.
pub(super) struct BesideOptions {
    pub(super) files: u64,
    pub(super) bytes: u64,
    pub(super) runs: usize,
    pub(super) dry: bool,
}

/// Reads them; `options` has what is usual.
pub(super) fn options(mut options: BesideOptions, words: &[&str]) -> Result<BesideOptions> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut number = || -> Result<u64> {
            let text = words.next().with_context(|| format!("{word} needs a number"))?;
            text.replace('_', "").parse().with_context(|| format!("{word} {text}"))
        };
        match *word {
            "--files" => options.files = number()?,
            "--bytes" => options.bytes = number()?,
            "--runs" => options.runs = usize::try_from(number()?)?.max(1),
            "--dry" => options.dry = true,
            _ => bail!("unknown option {word}: --files N, --bytes N, --runs N, --dry"),
        }
    }
    Ok(options)
}
