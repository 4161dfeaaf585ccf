"""Files that are open follow renames, and what is gone leaves nothing behind."""

from headrace.log.open_files import OpenFiles


class File:
    def __init__(self, path: str) -> None:
        self.path = path


def test_a_renamed_file_and_those_of_a_renamed_folder_follow() -> None:
    files: OpenFiles[File] = OpenFiles()
    first, second, deep, other = map(File, ("a/1", "a/1", "a/b/2", "ab/1"))
    for file in (first, second, deep, other):
        files.add(file)
    files.rename("a/1", "a/3")
    files.rename("a", "z")
    assert [file.path for file in (first, second, deep, other)] == ["z/3", "z/3", "z/b/2", "ab/1"]
    assert files.at("z/3") == [first, second]
    assert files.below("z") == [first, second, deep]
    assert files.at("a/1") == files.below("a") == []


def test_what_was_removed_or_forgotten_is_not_listed() -> None:
    files: OpenFiles[File] = OpenFiles()
    kept = File("kept/1")
    files.add(kept)
    for number in range(100):
        gone = File(f"t-{number}/log")
        files.add(gone)
        files.rename(f"t-{number}", f"t-{number}-delete")
        files.discard(f"t-{number}-delete")
        files.add(File(f"kept/{number}"))
    files.add(File("kept/last"))
    assert files.at("kept/1") == [kept]
    assert len(files) <= 4


def test_a_file_that_is_forgotten_after_its_folder_is_no_trouble() -> None:
    files: OpenFiles[File] = OpenFiles()
    file = File("t-0/log")
    files.add(file)
    files.discard("t-0")
    del file
    again = File("t-0/log")
    files.add(again)
    files.add(File("t-1/log"))
    assert files.at("t-0/log") == [again]
