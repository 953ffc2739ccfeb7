//! Permission bits.

/// Permission bits, with set-user-id, set-group-id and the sticky bit.
///
/// ```
/// use creamery::Permissions;
/// assert_eq!(Permissions::from_mode(0o4755).to_string(), "rwsr-xr-x");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Permissions(u32);

impl Permissions {
    /// The lower twelve bits of a mode, as [`std::os::unix::fs::PermissionsExt::from_mode`].
    ///
    /// ```
    /// use creamery::Permissions;
    /// assert_eq!(Permissions::from_mode(0o100644).mode(), 0o644);
    /// ```
    #[must_use]
    pub const fn from_mode(mode: u32) -> Self {
        Self(mode & 0o7777)
    }

    /// Returns the bits, as [`std::os::unix::fs::PermissionsExt::mode`] does.
    ///
    /// ```
    /// use creamery::Permissions;
    /// assert_eq!(Permissions::from_mode(0o600).mode(), 0o600);
    /// ```
    #[must_use]
    pub const fn mode(self) -> u32 {
        self.0
    }
}

impl std::fmt::Display for Permissions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bit = |mask: u32| self.0 & mask != 0;
        for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
            let execute = match (bit(special), bit(1 << shift)) {
                (false, false) => '-',
                (false, true) => 'x',
                (true, true) => letter,
                (true, false) => letter.to_ascii_uppercase(),
            };
            let read = if bit(4 << shift) { 'r' } else { '-' };
            let write = if bit(2 << shift) { 'w' } else { '-' };
            write!(f, "{read}{write}{execute}")?;
        }
        Ok(())
    }
}
