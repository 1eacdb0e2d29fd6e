#include <banyan/session.hpp>
#include <iostream>

int main(int argc, char** argv) {
  if (argc != 2) return std::cerr << "usage: readme MODEL\n", 2;
  const auto model = banyan::Model::load(argv[1]);
  banyan::Session session;
  session.add_lane(banyan::make_runner(model, {.n_kv_slots = 4096}));

  // A few-shot root, two prompts below it, eight samples below each: all sixteen decode as one batch.
  const auto root = session.insert("a cherry is red.\na lemon is yellow.\nthe grass is green.\n");
  const auto plum = session.extend(root, "a plum is");
  const auto snow = session.extend(root, "the snow is");

  const banyan::SampleOptions options{.n = 8, .max_tokens = 12, .stop = {"\n"}};
  for (const auto& thought : session.run(session.sample({plum, snow}, options))) {
    std::cout << (thought.parent_index == 0 ? "a plum is" : "the snow is") << thought.text << "\n";
  }
}
