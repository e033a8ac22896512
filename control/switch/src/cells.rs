// SPDX-License-Identifier: Apache-2.0
//! Cells of clients: their numbers over all boxes of a switch.
//!
//! Each box numbers its clients by itself, and the switch counts them in cells that all boxes share.
//! A box has the cells from `box * room` on; with one box a cell is the client's number.

use crate::config::Config;
use crate::model::MAX_CLIENTS;
use crate::names;
use p4runtime::P4Info;

/// Cells of each box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cells {
    boxes: u16,
    room: u16,
}

impl Cells {
    /// For a number of boxes, 1 to 8, and the cells that the program has.
    #[must_use]
    pub fn new(boxes: usize, counted: u16) -> Self {
        let boxes = u16::try_from(boxes).unwrap_or(u16::MAX).max(1);
        Self { boxes, room: counted / boxes.checked_next_power_of_two().unwrap_or(u16::MAX) }
    }

    pub(crate) fn of(config: &Config) -> Self {
        let info = P4Info::decode(&config.program.p4info);
        let counted = info.map_or(MAX_CLIENTS, |info| names::counted(&info));
        Self::new(config.boxes.len(), counted)
    }

    /// Cells of a box: those of the program, 4096 (2048 on a Tofino), shared by the number of boxes
    /// rounded up to a power of two.
    #[must_use]
    pub fn room(self) -> u16 {
        self.room
    }

    /// The cell of a client of a box. A number that has no cell, [`Self::room`] and above, is that of no
    /// client: this box classifies its frames.
    #[must_use]
    pub fn cell(self, owner: u8, number: u16) -> u16 {
        let base = u16::from(owner).saturating_mul(self.room);
        base.saturating_add(if number < self.room { number } else { 0 })
    }

    /// The box of a cell, and the client's number there.
    #[must_use]
    pub fn place(self, cell: u16) -> (u8, u16) {
        let several = self.boxes > 1 && self.room > 0;
        let (owner, number) =
            if several { (cell / self.room, cell % self.room) } else { (0, cell) };
        (u8::try_from(owner).unwrap_or(u8::MAX), number)
    }

    /// Whether there is such a box.
    pub(crate) fn has(self, owner: u8) -> bool {
        u16::from(owner) < self.boxes
    }

    pub(crate) fn boxes(self) -> impl Iterator<Item = u8> {
        (0..self.boxes).filter_map(|owner| u8::try_from(owner).ok())
    }

    /// Bits of client numbers that have no cell.
    pub(crate) fn over(self) -> u16 {
        !self.room.saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cell_of_one_box_is_the_client_number() {
        let cells = Cells::new(1, 2048);
        assert_eq!((cells.room(), cells.over()), (2048, 0xf800));
        assert_eq!((cells.cell(0, 9), cells.place(9)), (9, (0, 9)));
        // It has a gate, but no cell.
        assert_eq!((cells.cell(0, 2048), cells.place(3000)), (0, (0, 3000)));
    }

    #[test]
    fn cells_of_several_boxes_do_not_overlap() {
        for (boxes, room) in [(2, 2048), (3, 1024), (4, 1024), (5, 512), (8, 512)] {
            let cells = Cells::new(boxes, 4096);
            assert_eq!((cells.room(), cells.over()), (room, 0u16.wrapping_sub(room)));
            let all = cells.boxes().flat_map(|owner| (0..room).map(move |number| (owner, number)));
            for (cell, (owner, number)) in (0..).zip(all) {
                assert_eq!(cells.cell(owner, number), cell);
                assert_eq!(cells.place(cell), (owner, number));
            }
            assert_eq!(cells.cell(1, room), room);
            assert!(cells.has(boxes as u8 - 1) && !cells.has(boxes as u8));
        }
    }
}
