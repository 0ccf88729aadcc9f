#include "client/memcgctl_completion.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace memcgd::client {
namespace {

struct Flag {
  std::vector<std::string> names;  // with their dashes
  std::string help;
  std::string type;  // empty: takes no value
};

struct Command {
  std::string path;  // "" for memcgctl itself, "node create"
  std::string help;
  std::vector<std::string> subcommands;  // names
  std::vector<std::string> subcommand_helps;
  std::vector<Flag> flags;      // of its own; those of the root may stand behind every command
  std::string positional_type;  // of what it takes besides flags, empty: nothing
};

Flag MakeFlag(const CLI::Option& option) {
  Flag flag;
  for (const std::string& name : option.get_lnames()) flag.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) flag.names.push_back("-" + name);
  flag.help = option.get_description();
  if (option.get_items_expected_max() != 0)
    flag.type = option.get_type_name().empty() ? "VALUE" : option.get_type_name();
  return flag;
}

void Collect(const CLI::App& app, const std::string& path, std::vector<Command>* commands) {
  Command command;
  command.path = path;
  command.help = app.get_description();
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      command.positional_type = option->get_type_name();
    } else {
      command.flags.push_back(MakeFlag(*option));
    }
  }
  const auto children = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* child : children) {
    command.subcommands.push_back(child->get_name());
    command.subcommand_helps.push_back(child->get_description());
  }
  commands->push_back(std::move(command));
  for (const CLI::App* child : children) {
    Collect(*child, path.empty() ? child->get_name() : absl::StrCat(path, " ", child->get_name()), commands);
  }
}

// The choices of a type such as "table|json", empty for other types.
std::vector<std::string> Choices(const std::string& type) {
  if (!absl::StrContains(type, "|")) return {};
  return absl::StrSplit(type, '|');
}

bool IsFile(const std::string& type) { return absl::StartsWith(type, "FILE"); }

// In single quotes, for bash and zsh; fish escapes within them otherwise.
std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}
std::string FishQuoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

// Steps from a command to its subcommands, "FROM NAME" → "FROM NAME" without a leading blank.
std::vector<std::string> Steps(const std::vector<Command>& commands) {
  std::vector<std::string> steps;
  for (const Command& command : commands) {
    for (const std::string& name : command.subcommands)
      steps.push_back(absl::StrCat(command.path, " ", name));
  }
  return steps;
}

std::string WithoutLeadingBlank(const std::string& step) { return step[0] == ' ' ? step.substr(1) : step; }

// Patterns of case for "COMMAND FLAG": those of the root's flags fit any command.
std::string FlagPatterns(const Command& command, const Flag& flag) {
  std::vector<std::string> patterns;
  for (const std::string& name : flag.names) {
    patterns.push_back(command.path.empty() ? absl::StrCat("*' ", name, "'")
                                            : absl::StrCat("'", command.path, " ", name, "'"));
  }
  return absl::StrJoin(patterns, "|");
}

std::vector<std::string> FlagNames(const std::vector<Command>& commands, const Command& command) {
  std::vector<std::string> names;
  for (const Flag& flag : command.flags) names.insert(names.end(), flag.names.begin(), flag.names.end());
  if (command.path.empty()) return names;
  for (const Flag& flag : commands.front().flags) {
    // Help is every command's own; the version is the root's alone.
    if (flag.names.front() == "--help" || flag.names.front() == "--version") continue;
    names.insert(names.end(), flag.names.begin(), flag.names.end());
  }
  return names;
}

// What stands in the branches of bash's and zsh's case for the value of a flag.
template <typename Choice, typename File>
std::string ValueCases(const std::vector<Command>& commands, Choice choice, File file) {
  std::string text;
  for (const Command& command : commands) {
    for (const Flag& flag : command.flags) {
      if (flag.type.empty()) continue;
      const std::vector<std::string> choices = Choices(flag.type);
      absl::StrAppend(&text, "    ", FlagPatterns(command, flag), ") ",
                      !choices.empty()    ? choice(choices)
                      : IsFile(flag.type) ? file()
                                          : std::string(),
                      "return ;;\n");
    }
  }
  return text;
}

std::string StepCases(const std::vector<Command>& commands) {
  std::string text;
  for (const std::string& step : Steps(commands)) {
    absl::StrAppend(&text, "      ", Quoted(step), ") command=", Quoted(WithoutLeadingBlank(step)), " ;;\n");
  }
  return text;
}

std::string BashScript(const std::vector<Command>& commands) {
  std::string text =
      "# bash completion for memcgctl; made by `memcgctl completion bash`.\n"
      "_memcgctl() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= words= flags= files= "
      "i\n"
      "  COMPREPLY=()\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    case \"$command ${COMP_WORDS[i]}\" in\n";
  absl::StrAppend(&text, StepCases(commands), "    esac\n  done\n  case \"$command $prev\" in\n");
  text += ValueCases(
      commands,
      [](const auto& choices) {
        return absl::StrCat("COMPREPLY=($(compgen -W '", absl::StrJoin(choices, " "), "' -- \"$cur\")); ");
      },
      [] { return std::string("compopt -o filenames; COMPREPLY=($(compgen -f -- \"$cur\")); "); });
  text += "  esac\n  case \"$command\" in\n";
  for (const Command& command : commands) {
    std::vector<std::string> words = command.subcommands;
    for (std::string& choice : Choices(command.positional_type)) words.push_back(std::move(choice));
    absl::StrAppend(&text, "    ", Quoted(command.path), ") words=", Quoted(absl::StrJoin(words, " ")),
                    " flags=", Quoted(absl::StrJoin(FlagNames(commands, command), " ")),
                    IsFile(command.positional_type) ? " files=1" : "", " ;;\n");
  }
  text +=
      "  esac\n"
      "  if [[ $cur == -* ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$flags\" -- \"$cur\"))\n"
      "  elif [[ -n $files ]]; then\n"
      "    compopt -o filenames\n"
      "    COMPREPLY=($(compgen -f -- \"$cur\"))\n"
      "  else\n"
      "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
      "  fi\n"
      "}\n"
      "complete -F _memcgctl memcgctl\n";
  return text;
}

// "name:help" as zsh's _describe takes it.
std::string ZshItem(const std::string& name, const std::string& help) {
  return Quoted(absl::StrCat(absl::StrReplaceAll(name, {{":", "\\:"}}), ":", help));
}

std::string ZshItems(const std::vector<Command>& commands, const Command& command) {
  std::string text = "      items=(";
  for (size_t i = 0; i < command.subcommands.size(); ++i) {
    absl::StrAppend(&text, "\n        ", ZshItem(command.subcommands[i], command.subcommand_helps[i]));
  }
  for (const std::string& choice : Choices(command.positional_type)) {
    absl::StrAppend(&text, "\n        ", ZshItem(choice, ""));
  }
  text += ")\n      flags=(";
  const auto add = [&text](const Flag& flag) {
    for (const std::string& name : flag.names) absl::StrAppend(&text, "\n        ", ZshItem(name, flag.help));
  };
  for (const Flag& flag : command.flags) add(flag);
  if (!command.path.empty()) {
    for (const Flag& flag : commands.front().flags) {
      if (flag.names.front() != "--help" && flag.names.front() != "--version") add(flag);
    }
  }
  return absl::StrCat(text, ")\n", IsFile(command.positional_type) ? "      files=1\n" : "");
}

std::string ZshScript(const std::vector<Command>& commands) {
  std::string text =
      "#compdef memcgctl\n"
      "# zsh completion for memcgctl; made by `memcgctl completion zsh`.\n"
      "_memcgctl() {\n"
      "  local prev=${words[CURRENT-1]} command= files= i\n"
      "  local -a items flags\n"
      "  for ((i = 2; i < CURRENT; i++)); do\n"
      "    case \"$command ${words[i]}\" in\n";
  absl::StrAppend(&text, StepCases(commands), "    esac\n  done\n  case \"$command $prev\" in\n");
  text += ValueCases(
      commands,
      [](const auto& choices) { return absl::StrCat("compadd -- ", absl::StrJoin(choices, " "), "; "); },
      [] { return std::string("_files; "); });
  text += "  esac\n  case \"$command\" in\n";
  for (const Command& command : commands) {
    absl::StrAppend(&text, "    ", Quoted(command.path), ")\n", ZshItems(commands, command), "      ;;\n");
  }
  text +=
      "  esac\n"
      "  if [[ $PREFIX == -* ]]; then\n"
      "    _describe -o option flags\n"
      "    return\n"
      "  fi\n"
      "  (( ${#items} )) && _describe -t commands command items\n"
      "  [[ -n $files ]] && _files\n"
      "}\n"
      "if [[ $funcstack[1] == _memcgctl ]]; then _memcgctl \"$@\"; else compdef _memcgctl memcgctl; fi\n";
  return text;
}

std::string FishFlag(const std::string& condition, const Flag& flag) {
  std::string text = absl::StrCat("complete -c memcgctl -n ", FishQuoted(condition));
  for (const std::string& name : flag.names) {
    const bool is_long = absl::StartsWith(name, "--");
    absl::StrAppend(&text, is_long ? " -l " : " -s ", name.substr(is_long ? 2 : 1));
  }
  const std::vector<std::string> choices = Choices(flag.type);
  if (!choices.empty()) {
    absl::StrAppend(&text, " -x -a ", FishQuoted(absl::StrJoin(choices, " ")));
  } else if (!flag.type.empty()) {
    text += IsFile(flag.type) ? " -r -F" : " -x";
  }
  return absl::StrCat(text, " -d ", FishQuoted(flag.help), "\n");
}

std::string FishScript(const std::vector<Command>& commands) {
  std::string text =
      "# fish completion for memcgctl; made by `memcgctl completion fish`.\n"
      "function __memcgctl_command\n"
      "  set -l command ''\n"
      "  for word in (commandline -opc)[2..-1]\n"
      "    switch \"$command $word\"\n";
  for (const std::string& step : Steps(commands)) {
    absl::StrAppend(&text, "      case ", FishQuoted(step), "\n        set command ",
                    FishQuoted(WithoutLeadingBlank(step)), "\n");
  }
  text +=
      "    end\n"
      "  end\n"
      "  echo $command\n"
      "end\n"
      "complete -c memcgctl -f\n";
  for (const Command& command : commands) {
    const std::string condition = absl::StrCat("test \"$(__memcgctl_command)\" = '", command.path, "'");
    for (size_t i = 0; i < command.subcommands.size(); ++i) {
      absl::StrAppend(&text, "complete -c memcgctl -n ", FishQuoted(condition), " -a ",
                      FishQuoted(command.subcommands[i]), " -d ", FishQuoted(command.subcommand_helps[i]),
                      "\n");
    }
    for (const std::string& choice : Choices(command.positional_type)) {
      absl::StrAppend(&text, "complete -c memcgctl -n ", FishQuoted(condition), " -a ", FishQuoted(choice),
                      "\n");
    }
    if (IsFile(command.positional_type)) {
      absl::StrAppend(&text, "complete -c memcgctl -n ", FishQuoted(condition), " -F\n");
    }
    for (const Flag& flag : command.flags) {
      const bool everywhere =
          command.path.empty() && flag.names.front() != "--help" && flag.names.front() != "--version";
      text += FishFlag(everywhere ? "true" : condition, flag);
    }
  }
  return text;
}

}  // namespace

std::string CompletionScript(const CLI::App& app, const std::string& shell) {
  std::vector<Command> commands;
  Collect(app, "", &commands);
  if (shell == "bash") return BashScript(commands);
  return shell == "zsh" ? ZshScript(commands) : FishScript(commands);
}

}  // namespace memcgd::client
