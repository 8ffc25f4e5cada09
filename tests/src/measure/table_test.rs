use super::*;

fn table() -> Table {
    let mut table = Table::new("rates", "How fast.", &["case", "MiB/s", "ratio"]);
    table.row(["usual".into(), 12.5.into(), Cell::Nothing]);
    table
}

#[test]
fn a_table_is_markdown_as_documents_have_it() {
    assert_eq!(
        table().markdown(),
        "### `rates`\n\nHow fast.\n\n| case  | MiB/s | ratio |\n|-------|-------|-------|\n| usual | 12.5  | –     |\n"
    );
}

#[test]
fn a_row_is_an_object_that_names_its_table_and_columns() {
    let records = table().records();
    assert_eq!(
        Value::from(records),
        json!([{ "table": "rates", "case": "usual", "MiB/s": 12.5, "ratio": null }])
    );
}
