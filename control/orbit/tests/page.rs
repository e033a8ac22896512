// SPDX-License-Identifier: Apache-2.0
//! The report.

use crate::sky::{Circle, follow, query};
use orbit::elements::read;
use orbit::report::html;

#[test]
fn report_is_one_well_formed_page_with_plots_and_escaped_names() {
    let circles = [Circle::equatorial(550.0, 0.0), Circle::equatorial(550.0, -20.0)];
    let track = follow(&query(95), &circles);
    let names = ["<b>A&\"</b>", "B"];
    let text: String =
        circles.iter().zip(names).map(|(circle, name)| circle.tle(name, 1)).collect();
    let satellites = read("it", text.as_bytes()).unwrap();
    let page = html("It", &[("ground", "0,0".to_owned())], &track, &satellites).unwrap();
    let xml = page.replacen("<!DOCTYPE html>", "", 1);
    let document = roxmltree::Document::parse(&xml).unwrap();
    let count = |tag| document.descendants().filter(|node| node.has_tag_name(tag)).count();
    let svg = document.descendants().filter(|node| node.tag_name().name() == "svg").count();
    assert_eq!((svg, count("script"), count("b")), (2, 0, 0));
    let cells: Vec<_> = document.descendants().filter_map(|node| node.text()).collect();
    assert!(cells.contains(&names[0]) && cells.contains(&"none"));
    assert_eq!(page, html("It", &[("ground", "0,0".to_owned())], &track, &satellites).unwrap());
}

#[test]
fn report_without_any_link_is_drawn() {
    let circles = [Circle::equatorial(550.0, 180.0)];
    let track = follow(&query(5), &circles);
    assert!(html("It", &[], &track, &[]).unwrap().contains("none"));
}
