#!/usr/bin/python3
"""Prints a model's answers beside the kernel's.

usage: compare_table.py KERNEL.json MODEL.json
       compare_table.py --times KERNEL.json      the times to ask the model for, one a line

KERNEL.json is of a folder of tests/fidelity/traces, MODEL.json what `memcgctl replay --stat-at TIMES -o json` printed.
"""
import argparse
import json

# Lines of memory.stat: those in bytes are shown in pages.
SHOWN = ('anon', 'file', 'shmem', 'file_mapped', 'active_file', 'inactive_file', 'pgfault', 'pgmajfault')
COUNTS = ('pgfault', 'pgmajfault')


def settled_samples(kernel):
    """Moments at which no thread was in the middle of anything: the state is one state."""
    return [sample for sample in kernel['samples'] if sample['quiet']]


def size(sample):
    return max((stat.get('anon', 0) + stat.get('file', 0) for stat in sample['cgroups'].values()), default=0)


def print_moment(sample, answer, page):
    """One row a cgroup; a cell is the kernel's value, and the model's where it differs."""
    rows = [('cgroup', *SHOWN)]
    for path, stat in sorted(sample['cgroups'].items()):
        model = answer['cgroups'].get(path, {})
        cells = []
        for key in SHOWN:
            unit = 1 if key in COUNTS else page
            theirs, ours = stat.get(key, 0) // unit, model.get(key, 0) // unit
            cells.append(f'{theirs} = {ours}' if theirs == ours else f'{theirs} / {ours}')
        rows.append((path, *cells))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print('  '.join(cell.ljust(width) if column == 0 else cell.rjust(width)
                        for column, (cell, width) in enumerate(zip(row, widths))))


def print_summary(samples, answers, page):
    print(f'\n{"":14}{"values":>8}{"equal":>8}  largest difference')
    for key in SHOWN:
        unit = 1 if key in COUNTS else page
        values = equal = worst = worst_of = 0
        for sample, answer in zip(samples, answers):
            for path, stat in sample['cgroups'].items():
                theirs = stat.get(key, 0) // unit
                difference = abs(theirs - answer['cgroups'].get(path, {}).get(key, 0) // unit)
                values += 1
                equal += difference == 0
                if difference > worst:
                    worst, worst_of = difference, theirs
        what = 'counts' if key in COUNTS else 'pages'
        largest = f'{worst} {what if worst > 1 else what[:-1]}, where the kernel has {worst_of}' if worst else 'none'
        print(f'{key:14}{values:8}{equal:8}  {largest}')


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('--times', action='store_true')
    parser.add_argument('kernel')
    parser.add_argument('model', nargs='?')
    arguments = parser.parse_args()
    with open(arguments.kernel) as file:
        kernel = json.load(file)
    samples = settled_samples(kernel)
    if arguments.times:
        for sample in samples:
            print(f'{sample["t1"]:.9f}')
        return
    with open(arguments.model) as file:
        answers = json.load(file)
    if len(answers) != len(samples):
        raise SystemExit(f'{len(samples)} times were asked for and {len(answers)} answered')
    page = kernel['meta']['page_size']
    fullest = max(range(len(samples)), key=lambda i: size(samples[i]))
    print(f'{" ".join(kernel["meta"]["command"])} on Linux {kernel["meta"]["kernel"]}, replayed: memory.stat at '
          f'{samples[fullest]["t1"]:.6f} s')
    print(f'kernel = memcgd where they are equal, kernel / memcgd where not; pages of {page} bytes, and counts\n')
    print_moment(samples[fullest], answers[fullest], page)
    print(f'\nAll {len(samples)} moments of the recording, every cgroup:')
    print_summary(samples, answers, page)


main()
