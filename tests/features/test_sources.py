"""What a source holds: its order, its names, and every refusal."""

from refusals import refused

from relfit.features.run import described, list_items


def _names(items):
    return [item.name for item in items]


def _texts(items):
    return [item.decode(item.payload(), "text") for item in items]


def test_subfolders_are_taken_only_if_asked_for(tmp_path):
    for name in ("b.png", "a/z.JPG", "a/c.webp", ".hidden.png", ".git/d.png", "notes.md", "a/._c.webp"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    refused(lambda: list_items(tmp_path, "images"), "2 of its 3 images are in subfolders ('a')", "--recursive")
    items = list_items(tmp_path, "images", recursive=True)
    assert _names(items) == ["a/c.webp", "a/z.JPG", "b.png"]
    assert described(tmp_path, items) == f"3 files of {tmp_path} (1 .jpg, 1 .png, 1 .webp)"
    assert _names(list_items(tmp_path, "images", recursive=True, limit=2)) == ["a/c.webp", "a/z.JPG"]
    # A subfolder without such files, and a hidden one, are no reason to stop.
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "only.txt").write_text("a text")
    assert _names(list_items(tmp_path / "a", "images")) == ["c.webp", "z.JPG"]
    (tmp_path / "a" / "notes").mkdir()
    (tmp_path / "a" / "notes" / "x.md").write_text("")
    assert _names(list_items(tmp_path / "a", "images")) == ["c.webp", "z.JPG"]


def test_files_and_folders_of_texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_bytes("\ufefffirst\r\n\r\n  \n zweite Zeile ä \u2028 still second\nlast".encode())
    items = list_items(path, "text")
    assert described(path, items) == f"3 lines of {path}"
    assert _names(items) == ["texts.txt:1", "texts.txt:4", "texts.txt:5"]
    assert _texts(items) == ["first", "zweite Zeile ä \u2028 still second", "last"]
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "b.txt").write_text("two\nlines")
    (folder / "a.txt").write_text("")
    items = list_items(folder, "text")
    assert _names(items) == ["a.txt", "b.txt"]
    assert _texts(items) == ["", "two\nlines"]


def test_json_lines(tmp_path):
    path = tmp_path / "answers.jsonl"
    path.write_text('{"text": "a\\nb", "id": 1}\n\n{"text": "", "answer": "c"}\n')
    assert _texts(list_items(path, "text")) == ["a\nb", ""]
    assert "line 1: expected an object with the field 'answer', got text, id" in refused(
        lambda: list_items(path, "text", field="answer")
    )


def test_bad_json_lines_are_named(tmp_path):
    path = tmp_path / "x.jsonl"
    for line, *parts in (
        ('{"text": "a"', "expected JSON"),
        ("[1]", "a JSON object", "a list"),
        ('{"text": 3}', "expected text", "int"),
        ('{"text": "\\ud800"}', "half a character"),
        ("[" * 100_000, "expected JSON"),
    ):
        path.write_text(f'{{"text": "fine"}}\n{line}\n')
        refused(lambda: list_items(path, "text"), "line 2", *parts)


def test_refusals(tmp_path):
    refused(lambda: list_items(tmp_path / "none", "text"), "no such file or folder")
    refused(lambda: list_items("x" * 5000, "text"), "no such file or folder")
    refused(lambda: list_items(tmp_path, "images"), "expected image files", "an empty folder")
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\x00")
    refused(lambda: list_items(tmp_path, "images"), "got texts; choose a model for text")
    refused(lambda: list_items(tmp_path / "a.txt", "text"), "expected UTF-8 text")
    refused(lambda: list_items(tmp_path / "a.txt", "images"), "expected a folder of images")
    refused(lambda: list_items(tmp_path / "a.txt", "text", recursive=True), "only a folder has subfolders")
    refused(lambda: list_items(tmp_path / "a.txt", "text", field="x"), "only .jsonl files have fields")
    refused(lambda: list_items(tmp_path, "text", limit=0), "limit")
    (tmp_path / "b.csv").write_text("1")
    refused(lambda: list_items(tmp_path / "b.csv", "text"), "a .txt or a .jsonl file")
    (tmp_path / "c.txt").write_text("\n \n")
    refused(lambda: list_items(tmp_path / "c.txt", "text"), "got none")
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "p.png").write_bytes(b"")
    refused(lambda: list_items(tmp_path / "pictures", "text"), "got images; choose a model for images")
