// A SequenceTree as a Boost.Graph: incidence, bidirectional, vertex and edge list graph. Layer 2; the only header with
// Boost.
//
//   banyan::SequenceGraph graph(tree);
//   boost::breadth_first_search(graph, root, boost::visitor(...));
//   boost::write_graphviz(out, graph);
//
// Vertices are NodeIds, edges point from parent to child. Holds lists of the tree's nodes and edges, in id order, taken
// when it is made: make a new one after the tree's structure changed. The vertex index is the place in that list, so
// BGL's own colour maps fit, however many ids are dead.
#pragma once

#include <algorithm>
#include <boost/graph/graph_traits.hpp>
#include <boost/graph/properties.hpp>
#include <boost/iterator/transform_iterator.hpp>
#include <boost/property_map/property_map.hpp>
#include <cstddef>
#include <utility>
#include <vector>

#include "banyan/tree.hpp"

namespace banyan {

class SequenceGraph {
 public:
  // Parent and child. The default one is no edge.
  struct Edge {
    NodeId source, target;
    friend auto operator<=>(const Edge&, const Edge&) = default;
  };
  struct ToChild {
    NodeId parent;
    Edge operator()(NodeId child) const { return {parent, child}; }
  };
  struct Traversal : virtual boost::bidirectional_graph_tag,
                     virtual boost::vertex_list_graph_tag,
                     virtual boost::edge_list_graph_tag {};

  // What boost::graph_traits asks for.
  using vertex_descriptor = NodeId;
  using edge_descriptor = Edge;
  using directed_category = boost::bidirectional_tag;
  using edge_parallel_category = boost::disallow_parallel_edge_tag;
  using traversal_category = Traversal;
  using vertex_iterator = std::vector<NodeId>::const_iterator;
  using out_edge_iterator = boost::transform_iterator<ToChild, const NodeId*, Edge, Edge>;
  using edge_iterator = std::vector<Edge>::const_iterator;
  using in_edge_iterator = edge_iterator;
  using vertices_size_type = std::size_t;
  using edges_size_type = std::size_t;
  using degree_size_type = std::size_t;
  static NodeId null_vertex() { return kNoNode; }

  explicit SequenceGraph(const SequenceTree& tree) : tree_(&tree), vertices_(tree.roots().begin(), tree.roots().end()) {
    for (std::size_t i = 0; i < vertices_.size(); ++i) {
      const auto below = tree.children(vertices_[i]);
      vertices_.insert(vertices_.end(), below.begin(), below.end());
    }
    std::sort(vertices_.begin(), vertices_.end());
    for (const NodeId node : vertices_) {
      if (tree.parent(node).valid()) edges_.push_back({tree.parent(node), node});
    }
  }

  const SequenceTree& tree() const { return *tree_; }
  const std::vector<NodeId>& vertices() const { return vertices_; }
  std::size_t index(NodeId node) const {
    return static_cast<std::size_t>(std::lower_bound(vertices_.begin(), vertices_.end(), node) - vertices_.begin());
  }
  const std::vector<Edge>& edges() const { return edges_; }

 private:
  const SequenceTree* tree_;
  std::vector<NodeId> vertices_;
  std::vector<Edge> edges_;  // by target
};

// --- IncidenceGraph ------------------------------------------------------------------------------------------------
inline NodeId source(const SequenceGraph::Edge& edge, const SequenceGraph&) { return edge.source; }
inline NodeId target(const SequenceGraph::Edge& edge, const SequenceGraph&) { return edge.target; }
inline std::pair<SequenceGraph::out_edge_iterator, SequenceGraph::out_edge_iterator> out_edges(
    NodeId node, const SequenceGraph& graph) {
  const auto children = graph.tree().children(node);
  const SequenceGraph::ToChild edge{node};
  return {{children.data(), edge}, {children.data() + children.size(), edge}};
}
inline std::size_t out_degree(NodeId node, const SequenceGraph& graph) { return graph.tree().children(node).size(); }

// --- BidirectionalGraph --------------------------------------------------------------------------------------------
inline std::size_t in_degree(NodeId node, const SequenceGraph& graph) {
  return graph.tree().parent(node).valid() ? 1 : 0;
}
inline std::pair<SequenceGraph::in_edge_iterator, SequenceGraph::in_edge_iterator> in_edges(
    NodeId node, const SequenceGraph& graph) {
  const auto edge = std::lower_bound(graph.edges().begin(), graph.edges().end(), node,
                                     [](const SequenceGraph::Edge& e, NodeId target) { return e.target < target; });
  return {edge, edge + static_cast<std::ptrdiff_t>(in_degree(node, graph))};
}
inline std::size_t degree(NodeId node, const SequenceGraph& graph) {
  return in_degree(node, graph) + out_degree(node, graph);
}

// --- VertexListGraph -----------------------------------------------------------------------------------------------
inline std::pair<SequenceGraph::vertex_iterator, SequenceGraph::vertex_iterator> vertices(const SequenceGraph& graph) {
  return {graph.vertices().begin(), graph.vertices().end()};
}
inline std::size_t num_vertices(const SequenceGraph& graph) { return graph.vertices().size(); }

// --- EdgeListGraph -------------------------------------------------------------------------------------------------
inline std::pair<SequenceGraph::edge_iterator, SequenceGraph::edge_iterator> edges(const SequenceGraph& graph) {
  return {graph.edges().begin(), graph.edges().end()};
}
inline std::size_t num_edges(const SequenceGraph& graph) { return graph.edges().size(); }

// --- vertex_index property -----------------------------------------------------------------------------------------
class SequenceGraphIndex : public boost::put_get_helper<std::size_t, SequenceGraphIndex> {
 public:
  using key_type = NodeId;
  using value_type = std::size_t;
  using reference = std::size_t;
  using category = boost::readable_property_map_tag;
  SequenceGraphIndex() = default;
  explicit SequenceGraphIndex(const SequenceGraph& graph) : graph_(&graph) {}
  std::size_t operator[](NodeId node) const { return graph_->index(node); }

 private:
  const SequenceGraph* graph_ = nullptr;
};
inline SequenceGraphIndex get(boost::vertex_index_t, const SequenceGraph& graph) { return SequenceGraphIndex(graph); }
inline std::size_t get(boost::vertex_index_t, const SequenceGraph& graph, NodeId node) { return graph.index(node); }

}  // namespace banyan

template <>
struct boost::property_map<banyan::SequenceGraph, boost::vertex_index_t> {
  using type = banyan::SequenceGraphIndex;
  using const_type = banyan::SequenceGraphIndex;
};
