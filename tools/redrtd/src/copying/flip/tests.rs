use super::*;

#[test]
fn a_thread_is_found_by_the_id_that_it_knows_itself_by() {
    assert_eq!(inner_id("Name:\ta\nNSpid:\t1234\t7\n"), Some(7));
    assert_eq!(inner_id("Name:\ta\nNSpid:\t1234\n"), Some(1234));
    assert_eq!(inner_id("Name:\ta\n"), None);
}
