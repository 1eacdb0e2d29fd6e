"""Plants includes of each forbidden kind in a small tree of files and sees check_layers find exactly those."""

import pathlib
import tempfile
import unittest

import check_layers


class CheckLayers(unittest.TestCase):
    def problems(self, files: dict[str, str]) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            # One file of each kind for the planted includes to reach.
            present = {
                "include/banyan/error.hpp": "", "include/banyan/tree.hpp": "", "include/banyan/plan.hpp": "",
                "include/banyan/session.hpp": "", "include/banyan/search/beam.hpp": "", "kernels/ops.hpp": "",
                "src/model/forward.hpp": "",
            }  # fmt: skip
            for name, text in (present | files).items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            found, n_files = check_layers.check(root)
            self.assertEqual(n_files, len(present | files))
            return found

    def assert_rejected(self, file: str, include: str, reason: str) -> None:
        found = self.problems({file: f"// a comment\n#include <vector>\n  #  include {include}\n"})
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(f"{file}:3: "), found)
        self.assertIn(reason, found[0])

    def assert_accepted(self, file: str, include: str) -> None:
        self.assertEqual(self.problems({file: f"#include {include}\n"}), [])

    def test_downward_is_fine(self):
        self.assert_accepted("include/banyan/lse.hpp", '"banyan/error.hpp"')
        self.assert_accepted("src/plan/planner.cpp", '"banyan/tree.hpp"')
        self.assert_accepted("src/engine/session.cpp", '"model/forward.hpp"')
        self.assert_accepted("search/beam.cpp", '"banyan/session.hpp"')
        self.assert_accepted("bench/bench_attention.cpp", '"kernels/ops.hpp"')

    def test_upward(self):
        self.assert_rejected("src/tree/tree.cpp", '"banyan/plan.hpp"', "layer 3, above")
        self.assert_rejected("include/banyan/types.hpp", "<banyan/tree.hpp>", "layer 2, above")
        self.assert_rejected("src/plan/planner.cpp", '"kernels/ops.hpp"', "layer 4, above")
        self.assert_rejected("src/engine/session.cpp", '"banyan/search/beam.hpp"', "layer 8, above")

    def test_upward_by_a_relative_path(self):
        self.assert_rejected("src/tree/tree.cpp", '"../model/forward.hpp"', "layer 5, above")

    def test_narrow_layers(self):
        self.assert_rejected("kernels/cpu/attention.cpp", '"banyan/tree.hpp"', "layer 4 must not know")
        self.assert_rejected("kernels/cpu/attention.cpp", '"banyan/plan.hpp"', "layer 4 must not know")
        self.assert_rejected("src/sampler/sampler.cpp", '"model/forward.hpp"', "layer 6 must not know")

    def test_drivers_and_tools_see_the_public_face_alone(self):
        self.assert_rejected("search/beam.cpp", '"model/forward.hpp"', "internal")
        self.assert_rejected("search/beam.cpp", '"kernels/ops.hpp"', "internal")
        self.assert_rejected("examples/readme.cpp", '"kernels/ops.hpp"', "internal")
        self.assert_rejected("src/cli/main.cpp", '"model/forward.hpp"', "internal")

    def test_public_headers_include_public_headers_alone(self):
        self.assert_rejected("include/banyan/model.hpp", '"kernels/ops.hpp"', "internal")

    def test_libraries_from_outside(self):
        for include in ("<Random123/philox.h>", "<fmt/format.h>", "<nlohmann/json.hpp>", "<cuda_runtime.h>", "<boost/any.hpp>"):
            self.assert_rejected("include/banyan/types.hpp", include, "alone")
        self.assert_accepted("include/banyan/graph.hpp", "<boost/graph/graph_concepts.hpp>")
        self.assert_accepted("kernels/sample_random.hpp", "<Random123/philox.h>")
        self.assert_rejected("src/model/weights.cpp", "<Random123/philox.h>", "kernels/")
        self.assert_rejected("kernels/cuda/step.cu", "<fmt/format.h>", "CUDA")
        self.assert_rejected("src/engine/session.cpp", "<cublas_v2.h>", "kernels/cuda/")

    def test_unknown_header_and_folder(self):
        self.assertIn("add it", "".join(self.problems({"include/banyan/novelty.hpp": ""})))
        self.assertIn("add it", "".join(self.problems({"src/novelty/a.cpp": ""})))


if __name__ == "__main__":
    unittest.main()
