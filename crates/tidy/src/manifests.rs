//! Manifests: the compiler that is promised is the one that everything is built and tested with, the version has its part of the changelog, and what
//! is published says what it is.

use anyhow::{Context, Result};
use serde_json::Value;
use toml::Table;

use creamery_workspace::{metadata, read, root};

/// Complains about versions that disagree, and about published crates that say too little.
pub(super) fn check(complaints: &mut Vec<String>) -> Result<()> {
    let manifest: Table = read("Cargo.toml")?.parse().context("reading Cargo.toml")?;
    let toolchain: Table = read("rust-toolchain.toml")?.parse().context("reading rust-toolchain.toml")?;
    let ours =
        manifest.get("workspace").and_then(|value| value.get("package")).context("workspace.package")?;
    let promised = ours.get("rust-version").and_then(|value| value.as_str());
    let used =
        toolchain.get("toolchain").and_then(|value| value.get("channel")).and_then(|value| value.as_str());
    if promised != used {
        complaints.push(format!(
            "Cargo.toml: rust-version is {promised:?}, and the toolchain that shows it is {used:?}"
        ));
    }
    let version = ours.get("version").and_then(|value| value.as_str()).context("the version")?;
    if !has_part(&read("CHANGELOG.md")?, version) {
        complaints.push(format!("CHANGELOG.md: no part `## {version} - DATE`"));
    }
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().context("packages in cargo metadata")?;
    let ours = packages.iter().filter(|package| package["source"].is_null() && is_published(package));
    complaints.extend(ours.filter_map(silence));
    Ok(())
}

fn has_part(changelog: &str, version: &str) -> bool {
    let date = changelog.lines().find_map(|line| line.strip_prefix(&format!("## {version} - ")));
    date.is_some_and(|date| date.len() == 10 && date.split('-').all(|number| number.parse::<u16>().is_ok()))
}

/// `publish = false` is an empty list of registries.
fn is_published(package: &Value) -> bool {
    package["publish"].is_null()
}

/// What a published package does not say.
fn silence(package: &Value) -> Option<String> {
    let name = package["name"].as_str()?;
    let says = |key: &str| match &package[key] {
        Value::String(said) => !said.is_empty(),
        Value::Array(said) => !said.is_empty(),
        _ => false,
    };
    let mut missing: Vec<&str> =
        ["description", "license", "keywords", "categories", "readme", "rust_version"]
            .into_iter()
            .filter(|key| !says(key))
            .collect();
    // A readme that is named and not there.
    let folder = package["manifest_path"].as_str().and_then(|path| path.strip_suffix("Cargo.toml"));
    let readme = folder.zip(package["readme"].as_str()).map(|(folder, readme)| format!("{folder}{readme}"));
    if readme.is_some_and(|readme| !root().join(readme).is_file()) {
        missing.push("readme");
    }
    (!missing.is_empty()).then(|| format!("{name} is published without {}", missing.join(", ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{has_part, is_published, silence};

    #[test]
    fn a_version_has_a_part_with_a_date() {
        assert!(has_part("## Unreleased\n\n## 0.1.0 - 2026-11-26\n", "0.1.0"));
        assert!(!has_part("## 0.1.0\n", "0.1.0"));
        assert!(!has_part("## 0.1.0 - 2026-11-26\n", "0.2.0"));
    }

    #[test]
    fn who_is_published_says_what_it_is() {
        let mut package = json!({
            "name": "a", "publish": null, "description": "d", "license": "MIT", "keywords": ["k"], "categories": ["c"],
            "readme": "none.md", "rust_version": "1.95.0", "manifest_path": "/none/Cargo.toml",
        });
        assert!(is_published(&package));
        assert_eq!(silence(&package).as_deref(), Some("a is published without readme"));
        package["keywords"] = json!([]);
        assert_eq!(silence(&package).as_deref(), Some("a is published without keywords, readme"));
        package["publish"] = json!([]);
        assert!(!is_published(&package));
    }
}
