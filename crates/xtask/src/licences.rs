//! The licences of everything that is linked, from `cargo metadata`, against a list of those we can pass on.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::workspace::metadata;

const ALLOWED: [&str; 10] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Fails on the first licences that we cannot pass on.
pub(crate) fn check() -> Result<()> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().context("packages in cargo metadata")?;
    let bad: Vec<String> = packages.iter().filter_map(complaint).collect();
    if !bad.is_empty() {
        bail!("licences that are not on the list:\n  {}", bad.join("\n  "));
    }
    println!("{} packages, all under licences we can pass on", packages.len());
    Ok(())
}

fn complaint(package: &Value) -> Option<String> {
    let name = format!("{} {}", package["name"].as_str()?, package["version"].as_str()?);
    let Some(licence) = package["license"].as_str() else { return Some(format!("{name}: no licence named")) };
    match allows(licence) {
        Ok(true) => None,
        Ok(false) => Some(format!("{name}: {licence}")),
        Err(error) => Some(format!("{name}: {licence}: {error}")),
    }
}

/// Whether an SPDX expression can be met with the allowed licences alone. The old form with `/` means OR.
fn allows(expression: &str) -> Result<bool> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().collect::<Vec<_>>();
    words.reverse();
    let result = either(&mut words)?;
    if let Some(rest) = words.pop() {
        bail!("unexpected {rest:?}");
    }
    Ok(result)
}

fn either(words: &mut Vec<&str>) -> Result<bool> {
    let mut result = both(words)?;
    while words.last() == Some(&"OR") {
        words.pop();
        result |= both(words)?;
    }
    Ok(result)
}

fn both(words: &mut Vec<&str>) -> Result<bool> {
    let mut result = one(words)?;
    while words.last() == Some(&"AND") {
        words.pop();
        result &= one(words)?;
    }
    Ok(result)
}

fn one(words: &mut Vec<&str>) -> Result<bool> {
    match words.pop().context("the expression ends early")? {
        "(" => {
            let result = either(words)?;
            if words.pop() != Some(")") {
                bail!("a parenthesis is not closed");
            }
            Ok(result)
        }
        name if words.last() == Some(&"WITH") => {
            words.pop();
            let exception = words.pop().context("WITH what")?;
            Ok(ALLOWED.contains(&&*format!("{name} WITH {exception}")))
        }
        name => Ok(ALLOWED.contains(&name)),
    }
}

#[cfg(test)]
mod tests {
    use super::allows;

    #[test]
    fn expressions_are_weighed() {
        for (expression, allowed) in [
            ("MIT OR Apache-2.0", true),
            ("MIT/Apache-2.0", true),
            ("GPL-2.0-only", false),
            ("GPL-2.0-only OR MIT", true),
            ("GPL-2.0-only AND MIT", false),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT", true),
            ("GPL-2.0 WITH Classpath-exception", false),
            ("Apache-2.0 AND (GPL-3.0 OR LGPL-3.0)", false),
        ] {
            assert_eq!(allows(expression).unwrap(), allowed, "{expression}");
        }
        assert!(allows("MIT OR").is_err());
        assert!(allows("(MIT").is_err());
        assert!(allows("MIT MIT").is_err());
    }
}
