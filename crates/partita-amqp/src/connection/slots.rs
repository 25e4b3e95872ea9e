//! Things with ids that are never those of another, though their places are used again.

use std::marker::PhantomData;

/// The id of a session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(Id);

/// The id of a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(Id);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Id {
    index: u32,
    /// How often the place was used before.
    generation: u32,
}

/// An id of a kind of thing.
pub(super) trait SlotId: Copy {
    fn make(index: u32, generation: u32) -> Self;
    fn index(self) -> u32;
    fn generation(self) -> u32;
}

macro_rules! slot_id {
    ($($name:ident)*) => {
        $(impl SlotId for $name {
            fn make(index: u32, generation: u32) -> Self {
                Self(Id { index, generation })
            }

            fn index(self) -> u32 {
                self.0.index
            }

            fn generation(self) -> u32 {
                self.0.generation
            }
        })*
    };
}

slot_id!(SessionId LinkId);

/// The things.
#[derive(Debug)]
pub(super) struct Slots<I, T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
    ids: PhantomData<I>,
}

impl<I, T> Default for Slots<I, T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), ids: PhantomData }
    }
}

impl<I: SlotId, T> Slots<I, T> {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn insert(&mut self, make: impl FnOnce(I) -> T) -> I {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            (self.slots.len() - 1) as u32
        });
        let (generation, slot) = &mut self.slots[index as usize];
        let id = I::make(index, *generation);
        *slot = Some(make(id));
        id
    }

    pub(super) fn remove(&mut self, id: I) -> Option<T> {
        let (generation, slot) = self.slots.get_mut(id.index() as usize)?;
        if *generation != id.generation() {
            return None;
        }
        let thing = slot.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(id.index());
        Some(thing)
    }

    #[inline]
    pub(super) fn get(&self, id: I) -> Option<&T> {
        let (generation, slot) = self.slots.get(id.index() as usize)?;
        if *generation == id.generation() { slot.as_ref() } else { None }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: I) -> Option<&mut T> {
        let (generation, slot) = self.slots.get_mut(id.index() as usize)?;
        if *generation == id.generation() { slot.as_mut() } else { None }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// What stands under small numbers that a peer chooses: channels, handles.
#[derive(Debug)]
pub(super) struct Numbered<T>(Vec<Option<T>>);

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Copy> Numbered<T> {
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<T> {
        self.0.get(number as usize).copied().flatten()
    }

    pub(super) fn set(&mut self, number: u32, thing: T) {
        let at = number as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, None);
        }
        self.0[at] = Some(thing);
    }

    pub(super) fn remove(&mut self, number: u32) -> Option<T> {
        let thing = self.0.get_mut(number as usize)?.take();
        while let Some(None) = self.0.last() {
            self.0.pop();
        }
        thing
    }

    /// A number under which nothing stands: the wanted one if it is free, else the lowest.
    pub(super) fn free(&self, wanted: Option<u32>) -> u32 {
        if let Some(wanted) = wanted.filter(|wanted| self.0.get(*wanted as usize).is_none_or(Option::is_none))
        {
            return wanted;
        }
        self.0.iter().position(Option::is_none).unwrap_or(self.0.len()) as u32
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = T> {
        self.0.iter().filter_map(|thing| *thing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_not_used_again() {
        let mut slots = Slots::<LinkId, u8>::default();
        let first = slots.insert(|_| 1);
        assert_eq!(slots.remove(first), Some(1));
        let second = slots.insert(|_| 2);
        assert_eq!((slots.get(first), slots.get(second)), (None, Some(&2)));
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.len(), 1);
    }

    #[test]
    fn the_lowest_free_number_is_found() {
        let mut numbered = Numbered::default();
        assert_eq!((numbered.free(None), numbered.free(Some(7))), (0, 7));
        numbered.set(0, 'a');
        numbered.set(2, 'c');
        assert_eq!((numbered.free(None), numbered.free(Some(0)), numbered.free(Some(1))), (1, 1, 1));
        assert_eq!(numbered.remove(2), Some('c'));
        assert_eq!((numbered.get(0), numbered.get(2), numbered.free(None)), (Some('a'), None, 1));
    }
}
