#include <boost/graph/breadth_first_search.hpp>
#include <boost/graph/depth_first_search.hpp>
#include <boost/graph/graph_concepts.hpp>
#include <boost/graph/graphviz.hpp>
#include <boost/graph/topological_sort.hpp>
#include <doctest/doctest.h>
#include <map>
#include <random>
#include <sstream>

#include "banyan/graph.hpp"

using namespace banyan;

BOOST_CONCEPT_ASSERT((boost::IncidenceGraphConcept<SequenceGraph>));
BOOST_CONCEPT_ASSERT((boost::BidirectionalGraphConcept<SequenceGraph>));
BOOST_CONCEPT_ASSERT((boost::VertexListGraphConcept<SequenceGraph>));
BOOST_CONCEPT_ASSERT((boost::EdgeListGraphConcept<SequenceGraph>));
BOOST_CONCEPT_ASSERT((boost::ReadablePropertyGraphConcept<SequenceGraph, NodeId, boost::vertex_index_t>));

namespace {

// A random forest of which most ids are dead, so that ids are far from dense.
void grow(SequenceTree& tree, std::vector<NodeId>& alive) {
  std::mt19937 rng(3);
  for (int i = 0; i < 3000; ++i) {
    if (alive.empty() || rng() % 20 == 0) {
      alive.push_back(tree.add_root({}));
    } else {
      alive.push_back(tree.fork(alive[rng() % alive.size()], 0));
    }
    if (rng() % 8 == 0) tree.prune(alive[rng() % alive.size()]);
    std::erase_if(alive, [&](NodeId n) { return !tree.alive(n); });
  }
}

}  // namespace

TEST_CASE("SequenceGraph: vertices, edges and degrees are those of the tree") {
  SequenceTree tree;
  std::vector<NodeId> alive;
  grow(tree, alive);
  REQUIRE(tree.id_bound() > 2 * tree.n_nodes());
  const SequenceGraph graph(tree);
  const auto [begin, end] = vertices(graph);
  CHECK(std::vector<NodeId>(begin, end) == alive);
  CHECK(num_vertices(graph) == alive.size());
  CHECK(num_edges(graph) == alive.size() - tree.roots().size());
  for (std::size_t i = 0; i < alive.size(); ++i) {
    const NodeId node = alive[i];
    REQUIRE(get(boost::vertex_index, graph, node) == i);
    REQUIRE(out_degree(node, graph) == tree.children(node).size());
    REQUIRE(in_degree(node, graph) == (tree.parent(node).valid() ? 1U : 0U));
    REQUIRE(degree(node, graph) == out_degree(node, graph) + in_degree(node, graph));
    std::vector<NodeId> children;
    for (auto [e, last] = out_edges(node, graph); e != last; ++e) {
      REQUIRE(source(*e, graph) == node);
      children.push_back(target(*e, graph));
    }
    REQUIRE(std::equal(children.begin(), children.end(), tree.children(node).begin(), tree.children(node).end()));
    for (auto [e, last] = in_edges(node, graph); e != last; ++e) {
      REQUIRE(*e == SequenceGraph::Edge{tree.parent(node), node});
    }
  }
}

TEST_CASE("SequenceGraph: BGL's searches and sort run on it with their own colour maps") {
  SequenceTree tree;
  std::vector<NodeId> alive;
  grow(tree, alive);
  const SequenceGraph graph(tree);

  std::map<NodeId, int> depth;
  const NodeId root = tree.roots().front();
  depth[root] = 0;
  boost::associative_property_map depth_map(depth);
  boost::breadth_first_search(
      graph, root, boost::visitor(boost::make_bfs_visitor(boost::record_distances(depth_map, boost::on_tree_edge()))));
  for (const auto& [node, d] : depth) {
    int n_up = 0;
    NodeId top = node;
    for (; tree.parent(top).valid(); top = tree.parent(top)) ++n_up;
    REQUIRE(top == root);
    REQUIRE(n_up == d);
  }

  struct Count : boost::default_dfs_visitor {
    explicit Count(std::size_t* nodes, std::size_t* backs) : n_nodes(nodes), n_backs(backs) {}
    void discover_vertex(NodeId, const SequenceGraph&) const { ++*n_nodes; }
    void back_edge(SequenceGraph::Edge, const SequenceGraph&) const { ++*n_backs; }
    void forward_or_cross_edge(SequenceGraph::Edge, const SequenceGraph&) const { ++*n_backs; }
    std::size_t *n_nodes, *n_backs;
  };
  std::size_t n_nodes = 0;
  std::size_t n_backs = 0;
  boost::depth_first_search(graph, boost::visitor(Count(&n_nodes, &n_backs)));
  CHECK(n_nodes == alive.size());
  CHECK(n_backs == 0);

  std::vector<NodeId> sorted;
  boost::topological_sort(graph, std::back_inserter(sorted));
  CHECK(sorted.size() == alive.size());
  std::map<NodeId, std::size_t> place;
  for (std::size_t i = 0; i < sorted.size(); ++i) place[sorted[i]] = i;
  for (const NodeId node : alive) {
    if (tree.parent(node).valid()) REQUIRE(place[tree.parent(node)] > place[node]);
  }
}

TEST_CASE("SequenceGraph: write_graphviz") {
  SequenceTree tree;
  const NodeId root = tree.add_root({});
  const NodeId gone = tree.fork(root);
  tree.fork(root);
  tree.prune(gone);
  std::ostringstream out;
  const SequenceGraph graph(tree);
  boost::write_graphviz(out, graph, [](std::ostream& o, NodeId node) { o << "[label=\"node " << node.value << "\"]"; });
  CHECK(out.str() == "digraph G {\n0[label=\"node 0\"];\n1[label=\"node 2\"];\n0->1 ;\n}\n");
}
