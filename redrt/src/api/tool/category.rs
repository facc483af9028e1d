//! Categories (MPI-5.0 §15.3.9): groups of variables and events.
//!
//! ```text
//!   redrt ──┬── redrt_replication
//!           ├── redrt_verification
//!           └── redrt_transport
//! ```

use super::control::CONTROLS;
use super::event::TYPES;
use super::performance::PERFORMANCES;
use super::{check_initialized, entry, index_of, put_text, set};
use redrt_abi::error::Result;
use redrt_abi::{Input, Output};
use std::ffi::{c_char, c_int};

/// The category of a variable or event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Category {
    Replication,
    Verification,
    Transport,
}

struct Described {
    name: &'static str,
    description: &'static str,
    /// `None` for the category that holds the others.
    category: Option<Category>,
}

/// All categories, by index.
static CATEGORIES: [Described; 4] = [
    Described { name: "redrt", description: "all that redrt tells of itself", category: None },
    Described {
        name: "redrt_replication",
        description: "how many processes play each rank, and what keeps them in step",
        category: Some(Category::Replication),
    },
    Described {
        name: "redrt_verification",
        description: "what is compared, and what was found to differ",
        category: Some(Category::Verification),
    },
    Described {
        name: "redrt_transport",
        description: "what goes between the processes, and how",
        category: Some(Category::Transport),
    },
];

impl Described {
    /// Indices of the entries of a list that belong to this category.
    fn members<T>(&self, list: &[T], category: impl Fn(&T) -> Category) -> Vec<c_int> {
        let places = list.iter().enumerate().filter(|(_, one)| self.category == Some(category(one)));
        places.map(|(place, _)| place as c_int).collect()
    }

    fn cvars(&self) -> Vec<c_int> {
        self.members(&CONTROLS, |control| control.category)
    }

    fn pvars(&self) -> Vec<c_int> {
        self.members(&PERFORMANCES, |performance| performance.category)
    }

    fn events(&self) -> Vec<c_int> {
        self.members(&TYPES, |of| of.category)
    }

    fn categories(&self) -> Vec<c_int> {
        if self.category.is_some() { Vec::new() } else { (1..CATEGORIES.len() as c_int).collect() }
    }
}

/// Stores the first `len` members.
fn put(members: &[c_int], len: c_int, indices: Output<c_int>) -> Result {
    let room = usize::try_from(len).unwrap_or(0);
    members.iter().take(room).enumerate().try_for_each(|(place, member)| indices.set_at(place, *member))
}

/// `MPI_T_category_get_num`.
pub fn t_category_get_num(num_cat: Output<c_int>) -> Result {
    check_initialized()?;
    num_cat.set(CATEGORIES.len() as c_int)
}

/// `MPI_T_category_changed`: categories never change.
pub fn t_category_changed(update_number: Output<c_int>) -> Result {
    check_initialized()?;
    update_number.set(0)
}

/// `MPI_T_category_get_index`.
pub fn t_category_get_index(name: Input<c_char>, cat_index: Output<c_int>) -> Result {
    index_of(CATEGORIES.iter().map(|category| category.name), name, cat_index)
}

/// `MPI_T_category_get_info`.
pub fn t_category_get_info(
    cat_index: c_int,
    name: Output<c_char>,
    name_len: Output<c_int>,
    desc: Output<c_char>,
    desc_len: Output<c_int>,
    num_cvars: Output<c_int>,
    num_pvars: Output<c_int>,
    num_categories: Output<c_int>,
) -> Result {
    let category = entry(&CATEGORIES, cat_index)?;
    put_text(category.name, name, name_len)?;
    put_text(category.description, desc, desc_len)?;
    set(num_cvars, category.cvars().len() as c_int);
    set(num_pvars, category.pvars().len() as c_int);
    set(num_categories, category.categories().len() as c_int);
    Ok(())
}

/// `MPI_T_category_get_num_events`.
pub fn t_category_get_num_events(cat_index: c_int, num_events: Output<c_int>) -> Result {
    num_events.set(entry(&CATEGORIES, cat_index)?.events().len() as c_int)
}

/// `MPI_T_category_get_cvars`.
pub fn t_category_get_cvars(cat_index: c_int, len: c_int, indices: Output<c_int>) -> Result {
    put(&entry(&CATEGORIES, cat_index)?.cvars(), len, indices)
}

/// `MPI_T_category_get_pvars`.
pub fn t_category_get_pvars(cat_index: c_int, len: c_int, indices: Output<c_int>) -> Result {
    put(&entry(&CATEGORIES, cat_index)?.pvars(), len, indices)
}

/// `MPI_T_category_get_events`.
pub fn t_category_get_events(cat_index: c_int, len: c_int, indices: Output<c_int>) -> Result {
    put(&entry(&CATEGORIES, cat_index)?.events(), len, indices)
}

/// `MPI_T_category_get_categories`.
pub fn t_category_get_categories(cat_index: c_int, len: c_int, indices: Output<c_int>) -> Result {
    put(&entry(&CATEGORIES, cat_index)?.categories(), len, indices)
}
