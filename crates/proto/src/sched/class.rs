//! Classes: how an application tells schedulers the kinds of its traffic apart.

use std::fmt;

/// Classes are numbers below this one. A higher number that an application sets counts as the
/// highest class.
pub const MAX_CLASSES: usize = 8;

/// A set of classes.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct ClassSet(u8);

impl ClassSet {
    /// None.
    pub const EMPTY: Self = Self(0);
    /// Every class.
    pub const ALL: Self = Self(u8::MAX);

    /// This one alone.
    pub fn of(class: u8) -> Self {
        Self(1 << known(class))
    }

    /// Whether no class is in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this class is in it.
    pub fn contains(self, class: u8) -> bool {
        self.0 & Self::of(class).0 != 0
    }

    /// The classes that are in both.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The classes that are in either.
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The classes that are not in `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The classes, lowest first.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..MAX_CLASSES as u8).filter(move |class| self.contains(*class))
    }
}

impl fmt::Debug for ClassSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl FromIterator<u8> for ClassSet {
    fn from_iter<T: IntoIterator<Item = u8>>(classes: T) -> Self {
        let classes = classes.into_iter();
        classes.fold(Self::EMPTY, |set, class| set.or(Self::of(class)))
    }
}

/// The class that this number stands for.
pub(crate) fn known(class: u8) -> u8 {
    class.min(MAX_CLASSES as u8 - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_each_class_once_and_a_number_beyond_them_is_the_highest() {
        let set: ClassSet = [3, 0, 3, 200].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 3, 7]);
        assert!(set.contains(7) && set.contains(8) && !set.contains(1));
        let rest = set.without(ClassSet::of(3));
        assert_eq!(rest.iter().collect::<Vec<_>>(), [0, 7]);
        assert_eq!(set.and(ClassSet::of(3)), ClassSet::of(3));
        assert_eq!(ClassSet::ALL.iter().count(), MAX_CLASSES);
        assert!(ClassSet::EMPTY.is_empty());
    }
}
