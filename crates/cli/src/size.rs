//! Sizes on the command line.

use std::str::FromStr;

use creamery_base::parse_size;

pub(crate) use creamery_base::HumanSize as Human;

/// A number of bytes, in the notation of users.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Size(pub(crate) u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_size(text).map(Self).map_err(|error| error.without_kind())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_size_is_said_without_more_words() {
        assert_eq!("2MiB".parse(), Ok(Size(2 << 20)));
        assert_eq!("G".parse::<Size>(), Err("invalid size 'G': expected a number, such as 512M".to_owned()));
    }
}
