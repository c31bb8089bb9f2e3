//! Datagrams whose deadline passed while they waited to be sent, counted by what the application
//! calls them.

use super::outgoing::Item;
use std::collections::BTreeMap;

/// Tags that are told apart until the application asks. Of further ones only the sum is known.
const MAX_TAGS: usize = 1024;

#[derive(Debug, Default)]
pub(in crate::streams) struct Expired {
    /// All of them.
    pub(in crate::streams) count: u64,
    /// Those that never left, by their tags, since the application asked.
    by_tag: BTreeMap<u64, u64>,
    /// Whether the application was told that there are some.
    is_told: bool,
}

impl Expired {
    /// One was dropped. If it waited to be sent again, the peer may have it.
    pub(super) fn note(&mut self, item: &Item) {
        self.count += 1;
        let (tag, has_left) = (item.options.tag, item.until.is_some());
        let has_room = self.by_tag.len() < MAX_TAGS || self.by_tag.contains_key(&tag);
        if has_room && !has_left {
            *self.by_tag.entry(tag).or_default() += 1;
        }
    }

    /// Whether to tell the application that there are some: once, until it asks.
    pub(in crate::streams) fn take_news(&mut self) -> bool {
        let is_news = !self.is_told && !self.by_tag.is_empty();
        self.is_told |= is_news;
        is_news
    }

    /// How many there were of each tag since this was asked last.
    pub(in crate::streams) fn take(&mut self) -> BTreeMap<u64, u64> {
        self.is_told = false;
        std::mem::take(&mut self.by_tag)
    }
}
