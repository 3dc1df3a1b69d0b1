"""Projects in DeepLabCut's layout: tables, pictures, sizes, and what is refused."""

import shutil

import numpy as np
import pytest
from PIL import Image

from geosoftmax_experiments.data.keypoints import OPENFIELD, load_project, read_labels
from geosoftmax_experiments.errors import UserError
from tests.conftest import data_file
from tests.experiments.keypoints.projects import PARTS, SIZE, write_project, write_table


@pytest.mark.parametrize("columns", [1, 3])
def test_tables_with_paths_in_one_column_or_three(tmp_path, columns):
    points = write_project(tmp_path, columns=columns)
    for folder in (tmp_path, tmp_path / "labeled-data", tmp_path / "labeled-data" / "v1"):
        project = load_project(str(folder))
        np.testing.assert_allclose(project.labels.points, points, atol=1e-6)
        assert project.labels.parts == PARTS
        assert project.labels.scorer == "Ada"
        assert project.size == SIZE
    assert np.isnan(project.labels.points[1, 0]).all()


def test_points_on_a_grid_come_back_as_pixels(tmp_path):
    points = write_project(tmp_path)
    frames = load_project(str(tmp_path)).frames((24, 32))
    assert frames.pictures.shape == (12, 24, 32)
    grid = frames.to_grid((12, 16))
    np.testing.assert_allclose(frames.from_grid(grid, (12, 16)), points, atol=1e-5)
    # The dark disc is where its point is, in pictures of half the size.
    small = frames.to_grid((24, 32))
    for picture, (row, column) in zip(frames.pictures[2:], small[2:, 0], strict=True):
        darkest = np.unravel_index(picture.argmin(), picture.shape)
        assert np.hypot(darkest[0] - row, darkest[1] - column) < 1.5


def test_several_videos_are_put_together(tmp_path):
    first = write_project(tmp_path, count=3, seed=1, video="a")
    second = write_project(tmp_path, count=4, seed=2, video="b")
    labels = load_project(str(tmp_path)).labels
    np.testing.assert_allclose(labels.points, np.concatenate([first, second]), atol=1e-6)


def test_rows_are_put_in_the_order_of_time(tmp_path):
    points = np.arange(8.0).reshape(2, 2, 2)
    write_table(tmp_path / "CollectedData_x.csv", ["b/img2.png", "b/img1.png"], points)
    labels = read_labels(tmp_path / "CollectedData_x.csv")
    assert labels.paths == ("b/img1.png", "b/img2.png")
    np.testing.assert_allclose(labels.points, points[::-1])


def test_pictures_that_were_shrunk_need_the_size_of_the_labels(tmp_path):
    points = write_project(tmp_path)
    for path in (tmp_path / "labeled-data" / "v1").glob("*.png"):
        Image.open(path).resize((32, 24)).save(path)
    with pytest.raises(UserError, match="--label-size"):
        load_project(str(tmp_path)).frames((24, 32))
    frames = load_project(str(tmp_path), SIZE).frames((24, 32))
    np.testing.assert_allclose(
        frames.from_grid(frames.to_grid((24, 32)), (24, 32)), points, atol=1e-5
    )


def test_frames_of_one_video_have_one_size(tmp_path):
    write_project(tmp_path)
    Image.new("L", (60, 48)).save(tmp_path / "labeled-data" / "v1" / "img003.png")
    with pytest.raises(UserError, match=r"img003.png has 60×48 pixels, img000.png beside it 64×48"):
        load_project(str(tmp_path)).frames((24, 32))


def test_paths_of_a_table_never_leave_its_folder(tmp_path):
    write_project(tmp_path / "project")
    table = tmp_path / "project" / "labeled-data" / "v1" / "CollectedData_Ada.csv"
    text = table.read_text().replace("labeled-data/v1/img000", "..\\..\\..\\secret")
    table.write_text(text)
    Image.new("L", (64, 48)).save(tmp_path / "secret.png")
    with pytest.raises(UserError, match=r"v1/secret\.png cannot be read"):
        load_project(str(tmp_path / "project")).frames((24, 32))


HEADER = "scorer,A,A\nbodyparts,nose,nose\ncoords,x,y\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "does not begin with the rows scorer"),
        (HEADER, "does not begin"),
        ("scorer,A,A\nindividuals,m,m\nbodyparts,n,n\ncoords,x,y\na.png,1,2\n", "several individ"),
        (HEADER + "a.png,1\n", "as many in every row"),
        ("scorer,A,A\nbodyparts,nose,nose\ncoords,y,x\na.png,1,2\n", "columns x and y"),
        (HEADER + "a.png,1,two\n", "'two' is no coordinate"),
        (HEADER + "a.png,1,inf\n", "'inf' is no coordinate"),
        (HEADER + "a.png,1,2\na.png,3,4\n", "twice"),
        (HEADER + "..,1,2\n", "no path of a frame"),
    ],
)
def test_tables_that_are_refused(tmp_path, text, message):
    path = tmp_path / "CollectedData_A.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        load_project(str(tmp_path))


def test_folders_that_are_refused(tmp_path):
    with pytest.raises(UserError, match="holds no labels"):
        load_project(str(tmp_path))
    write_project(tmp_path)
    table = tmp_path / "labeled-data" / "v1" / "CollectedData_Ada.csv"
    shutil.copy(table, table.with_name("CollectedData_Bob.csv"))
    with pytest.raises(UserError, match="several CollectedData tables"):
        load_project(str(tmp_path))


@pytest.mark.data
def test_openfield():
    data_file("openfield")
    project = load_project(OPENFIELD)
    assert len(project.paths) == 116
    assert project.labels.parts == ("snout", "leftear", "rightear", "tailbase")
    assert project.size == (480, 640)
    frames = project.frames((120, 160))
    # A mouse is dark on bright ground: its ears are darker than the median of the frame.
    rows, columns = np.moveaxis(frames.to_grid((120, 160))[:, 1].round().astype(int), -1, 0)
    ears = frames.pictures[np.arange(116), rows, columns]
    assert np.mean(ears < np.median(frames.pictures, (1, 2))) > 0.9
