#include "drivers/fault/rules.h"

#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "drivers/spec.h"

namespace uroce::drivers::fault {
namespace {

constexpr std::uint64_t kDefaultDelayNs = 10'000;
constexpr std::uint64_t kDefaultReorder = 3;

struct ActionName {
  std::string_view event;    // in "drop opcode=..."
  std::string_view setting;  // in "loss=1%"
  Action action;
};
constexpr std::array<ActionName, 7> kActions{{{"drop", "loss", Action::kDrop},
                                              {"dup", "dup", Action::kDuplicate},
                                              {"reorder", "reorder", Action::kReorder},
                                              {"corrupt", "corrupt", Action::kCorrupt},
                                              {"truncate", "truncate", Action::kTruncate},
                                              {"delay", "delay", Action::kDelay},
                                              {"mark-ce", "ce", Action::kMarkCe}}};

constexpr std::array<std::string_view, 24> kOperations = {"SEND_FIRST",
                                                          "SEND_MIDDLE",
                                                          "SEND_LAST",
                                                          "SEND_LAST_IMM",
                                                          "SEND_ONLY",
                                                          "SEND_ONLY_IMM",
                                                          "WRITE_FIRST",
                                                          "WRITE_MIDDLE",
                                                          "WRITE_LAST",
                                                          "WRITE_LAST_IMM",
                                                          "WRITE_ONLY",
                                                          "WRITE_ONLY_IMM",
                                                          "READ_REQUEST",
                                                          "READ_RESPONSE_FIRST",
                                                          "READ_RESPONSE_MIDDLE",
                                                          "READ_RESPONSE_LAST",
                                                          "READ_RESPONSE_ONLY",
                                                          "ACK",
                                                          "ATOMIC_ACK",
                                                          "COMPARE_SWAP",
                                                          "FETCH_ADD",
                                                          "",
                                                          "SEND_LAST_INV",
                                                          "SEND_ONLY_INV"};

struct TransportName {
  std::string_view prefix;
  std::uint8_t base;
  std::uint8_t first;  // of the operations that it has. IBA 9.2.1 ?
  std::uint8_t last;
};
constexpr std::array<TransportName, 4> kTransports{
    {{"RC_", 0x00, 0, 23}, {"UC_", 0x20, 0, 11}, {"UD_", 0x60, 4, 5}, {"XRC_", 0xa0, 0, 23}}};

Error wrong(std::string_view clause, const std::string& why) {
  return Error{Errc::kConfig, "fault rule " + quoted(clause) + ": " + why};
}

std::string_view trim(std::string_view text) noexcept {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// Cuts the part before the first `separator` off `text`.
std::string_view cut(std::string_view& text, char separator) noexcept {
  const auto at = text.find(separator);
  const std::string_view head = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view{} : text.substr(at + 1);
  return head;
}

Direction take_direction(std::string_view& word) noexcept {
  const bool is_tx = word.starts_with("tx.");
  if (is_tx || word.starts_with("rx.")) word.remove_prefix(3);
  return is_tx ? Direction::kTx : Direction::kRx;
}

std::optional<double> parse_probability(std::string_view text) {
  const bool is_percent = text.ends_with('%');
  const std::string number(is_percent ? text.substr(0, text.size() - 1) : text);
  char* end = nullptr;
  const double value = std::strtod(number.c_str(), &end) / (is_percent ? 100.0 : 1.0);
  if (number.empty() || *end != '\0' || !std::isfinite(value) || value < 0 || value > 1) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> parse_time_ns(std::string_view text) {
  struct Unit {
    std::string_view suffix;
    std::uint64_t ns;
  };
  for (const Unit unit : {Unit{"ns", 1}, Unit{"us", 1000}, Unit{"ms", 1'000'000}, Unit{"s", 1'000'000'000}}) {
    if (!text.ends_with(unit.suffix)) continue;
    const auto number = parse_number("time", text.substr(0, text.size() - unit.suffix.size()));
    if (!number || *number > 3'600'000'000'000U / unit.ns) return std::nullopt;
    return *number * unit.ns;
  }
  return std::nullopt;
}

/// What stands behind "delay=" or "reorder=" in an event, or behind the ':' of a setting.
Status parse_amount(Rule& rule, std::string_view clause, std::string_view text) {
  if (rule.action == Action::kDelay) {
    const auto time = parse_time_ns(text);
    if (!time) return wrong(clause, quoted(text) + " is no time; write e.g. 500ns, 20us, 1ms");
    rule.amount = *time;
    return {};
  }
  if (rule.action != Action::kReorder)
    return wrong(clause, "takes no amount; reorder takes frames, delay a time");
  const auto number = parse_number("count", text);
  if (!number || *number == 0 || *number > 1000) {
    return wrong(clause, quoted(text) + " is not a number of frames from 1 to 1000");
  }
  rule.amount = *number;
  return {};
}

Rule make_rule(Action action, Direction direction) {
  Rule rule;
  rule.action = action;
  rule.direction = direction;
  rule.amount = action == Action::kDelay ? kDefaultDelayNs : action == Action::kReorder ? kDefaultReorder : 0;
  return rule;
}

/// "loss=1%", "tx.delay=5%:20us"
Result<Rule> parse_setting(std::string_view item) {
  std::string_view value = item;
  std::string_view key = cut(value, '=');
  const Direction direction = take_direction(key);
  for (const ActionName& name : kActions) {
    if (key != name.setting) continue;
    Rule rule = make_rule(name.action, direction);
    rule.probability = parse_probability(cut(value, ':'));
    if (!rule.probability) return wrong(item, "needs a probability from 0 to 1 or 0% to 100%");
    if (!value.empty()) {
      if (Status status = parse_amount(rule, item, value); !status) return status.error();
    }
    return rule;
  }
  return wrong(item, "known: loss, dup, reorder, corrupt, truncate, delay, ce (with tx. or rx. before), all");
}

/// "loss=1%,tx.dup=0.1%,all"
Status parse_settings(std::string_view clause, std::vector<Rule>& rules) {
  const std::size_t first = rules.size();
  bool any_frame = false;
  std::string_view rest = clause;
  while (!rest.empty()) {
    const std::string_view item = trim(cut(rest, ','));
    if (item == "all") {
      any_frame = true;
      continue;
    }
    auto rule = parse_setting(item);
    if (!rule) return rule.error();
    rules.push_back(*rule);
  }
  if (rules.size() == first) return wrong(clause, "does not say what is done to frames; e.g. loss=1%,all");
  for (std::size_t i = first; i < rules.size(); ++i) rules[i].any_frame = any_frame;
  return {};
}

Status parse_number_into(std::string_view clause, std::string_view value, std::uint64_t low,
                         std::uint64_t high, std::uint64_t& number) {
  const auto parsed = parse_number("number", value);
  if (!parsed || *parsed < low || *parsed > high) {
    return wrong(clause, quoted(value) + " is not a number from " + std::to_string(low) + " to " +
                             std::to_string(high));
  }
  number = *parsed;
  return {};
}

Status parse_ack_kind(Rule& rule, std::string_view clause, std::string_view value) {
  if (value == "ack") {
    rule.ack = AckKind::kAck;
  } else if (value == "nak") {
    rule.ack = AckKind::kNak;
  } else if (value == "rnr") {
    rule.ack = AckKind::kRnrNak;
  } else {
    return wrong(clause, "aeth= is one of ack, nak, rnr");
  }
  return {};
}

Status parse_predicate(Rule& rule, std::string_view clause, std::string_view word) {
  if (word == "all") {
    rule.any_frame = true;
    return {};
  }
  std::string_view value = word;
  const std::string_view key = cut(value, '=');
  if (key == "opcode") {
    rule.opcode = opcode_by_name(value);
    if (!rule.opcode) return wrong(clause, "no opcode " + quoted(value) + "; e.g. RC_WRITE_MIDDLE, 0x07");
    return {};
  }
  if (key == "aeth") return parse_ack_kind(rule, clause, value);
  if (key == "nth") return parse_number_into(clause, value, 1, UINT64_MAX, rule.nth);
  if (key == "larger") return parse_number_into(clause, value, 1, UINT32_MAX, rule.larger);
  if (key == "every") return parse_number_into(clause, value, 1, UINT64_MAX, rule.every);
  if (key == "qpn" || key == "psn") {
    std::uint64_t number = 0;
    Status status = parse_number_into(clause, value, 0, 0xff'ffff, number);
    if (status) (key == "qpn" ? rule.dest_qpn : rule.psn) = static_cast<std::uint32_t>(number);
    return status;
  }
  return wrong(clause,
               quoted(word) + " is not one of opcode=, qpn=, psn=, aeth=, larger=, nth=, every=, all");
}

const ActionName* find_event(std::string_view word) noexcept {
  for (const ActionName& name : kActions) {
    if (word == name.event) return &name;
  }
  return nullptr;
}

/// "drop opcode=RC_WRITE_MIDDLE nth=3", "tx.delay=20us psn=5"
Result<Rule> parse_event(std::string_view clause) {
  std::string_view rest = clause;
  std::string_view amount = cut(rest, ' ');
  std::string_view word = cut(amount, '=');
  const Direction direction = take_direction(word);
  const ActionName* name = find_event(word);
  if (name == nullptr)
    return wrong(clause, "starts with none of drop, dup, reorder, corrupt, truncate, delay, mark-ce");
  Rule rule = make_rule(name->action, direction);
  if (!amount.empty()) {
    if (Status status = parse_amount(rule, clause, amount); !status) return status.error();
  }
  while (!rest.empty()) {
    const std::string_view predicate = cut(rest, ' ');
    if (predicate.empty()) continue;
    if (Status status = parse_predicate(rule, clause, predicate); !status) return status.error();
  }
  return rule;
}

/// A lone "delay=1%" is a setting; whatever has predicates or is a bare action is an event.
bool is_event(std::string_view clause) noexcept {
  if (clause.find(',') != std::string_view::npos) return false;
  std::string_view word = clause.substr(0, clause.find(' '));
  take_direction(word);
  return clause.find(' ') != std::string_view::npos || find_event(word) != nullptr;
}

Status parse_clauses(std::string_view text, std::vector<Rule>& rules) {
  while (!text.empty()) {
    const std::string_view clause = trim(cut(text, ';'));
    if (clause.empty()) continue;
    if (!is_event(clause)) {
      if (Status status = parse_settings(clause, rules); !status) return status;
      continue;
    }
    auto rule = parse_event(clause);
    if (!rule) return rule.error();
    rules.push_back(*rule);
  }
  return {};
}

/// Rules line by line; what stands behind # is a comment.
Result<std::vector<Rule>> parse_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Error{Errc::kNotFound, "fault: the rule file " + path + " cannot be read"};
  std::vector<Rule> rules;
  std::string line;
  for (unsigned number = 1; std::getline(file, line); ++number) {
    const std::string_view text = std::string_view(line).substr(0, line.find('#'));
    if (Status status = parse_clauses(text, rules); !status) {
      return Error{status.error().code, path + ":" + std::to_string(number) + ": " + status.error().text};
    }
  }
  if (file.bad() || std::filesystem::is_directory(path))
    return Error{Errc::kNotFound, "fault: the rule file " + path + " cannot be read"};
  return rules;
}

}  // namespace

bool Rule::fits(const RoceFields* fields, std::size_t len) const noexcept {
  if (larger != 0 && len <= larger) return false;
  const bool needs_roce = !any_frame || opcode || dest_qpn || psn || ack;
  if (fields == nullptr) return !needs_roce;
  if (opcode && *opcode != fields->opcode) return false;
  if (dest_qpn && *dest_qpn != fields->dest_qpn) return false;
  if (psn && *psn != fields->psn) return false;
  if (!ack) return true;
  if (!fields->syndrome) return false;
  switch (*fields->syndrome >> 5 & 3) {
    case 0:
      return *ack == AckKind::kAck;
    case 1:
      return *ack == AckKind::kRnrNak;
    case 3:
      return *ack == AckKind::kNak;
    default:
      return false;
  }
}

Result<std::vector<Rule>> parse_rules(std::string_view text) {
  const std::string_view whole = trim(text);
  if (whole.starts_with('@')) return parse_file(std::string(whole.substr(1)));
  std::vector<Rule> rules;
  if (Status status = parse_clauses(whole, rules); !status) return status.error();
  return rules;
}

std::optional<std::uint8_t> opcode_by_name(std::string_view name) noexcept {
  if (name == "CNP") return std::uint8_t{0x81};
  for (const TransportName& transport : kTransports) {
    if (!name.starts_with(transport.prefix)) continue;
    const std::string_view operation = name.substr(transport.prefix.size());
    for (std::uint8_t i = transport.first; i <= transport.last; ++i) {
      if (operation == kOperations[i] && !operation.empty())
        return static_cast<std::uint8_t>(transport.base + i);
    }
    return std::nullopt;
  }
  const auto number = parse_number("opcode", name);
  if (!number || *number > 0xff) return std::nullopt;
  return static_cast<std::uint8_t>(*number);
}

}  // namespace uroce::drivers::fault
