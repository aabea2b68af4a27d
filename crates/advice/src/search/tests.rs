//! Searches find the best partition, whatever the order of attributes.

use proptest::prelude::*;

use super::*;
use crate::{Access, Filter, Footprint, Machine, Part, Scan, TableShape, Workload, atoms::atoms};

fn shape(slot_bytes: Vec<u32>, rows: u64) -> TableShape {
    let names = (0..slot_bytes.len()).map(|at| format!("a{at}")).collect();
    TableShape::hot(names, slot_bytes, rows)
}

fn read(attributes: impl IntoIterator<Item = usize>, weight: f64) -> Footprint {
    Footprint {
        access: Access::Read {
            attributes: attributes.into_iter().collect(),
        },
        weight,
    }
}

fn workload(footprints: Vec<Footprint>) -> Workload {
    Workload {
        footprints,
        window_s: 1.0,
    }
}

/// The groups found, each sorted, in order.
fn found(shape: &TableShape, workload: &Workload) -> Vec<Vec<usize>> {
    let machine = Machine::default();
    let mut model = Model::new(workload, shape, &machine).unwrap();
    let atoms = atoms(&model);
    model.price_alone(&atoms);
    sorted(search(&model, &atoms))
}

fn sorted(mut groups: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
    groups.iter_mut().for_each(|group| group.sort_unstable());
    groups.sort();
    groups
}

#[test]
fn what_is_read_by_key_together_lies_together() {
    let workload = workload(vec![read([0, 3], 5.0), read([1, 2], 3.0)]);
    let groups = found(&shape(vec![4; 5], 1_000_000), &workload);
    assert_eq!(groups, [vec![0, 3], vec![1, 2], vec![4]]);
}

#[test]
fn atoms_tell_apart_what_is_filtered_and_what_is_projected() {
    let scan = Scan {
        share: 1.0,
        predicates: vec![Filter {
            attribute: 1,
            selectivity: 0.1,
        }],
        projection: vec![0, 2, 4],
    };
    let workload = workload(vec![Footprint {
        access: Access::Scan(scan),
        weight: 1.0,
    }]);
    let shape = shape(vec![2, 4, 8, 4, 2], 1_000);
    let machine = Machine::default();
    let model = Model::new(&workload, &shape, &machine).unwrap();
    // Filtered 4 bytes weigh more than 12 of one row in ten; the widest first.
    let mut atoms = atoms(&model);
    atoms.sort();
    assert_eq!(atoms, [vec![1], vec![2, 0, 4], vec![3]]);
}

#[test]
fn work_that_runs_out_ends_the_search_with_whole_blocks() {
    let shape = shape(vec![4; 40], 1_000_000);
    let footprints = (0..39).map(|at| read([at, at + 1], 1.0 + at as f64));
    let workload = workload(footprints.collect());
    let machine = Machine::default();
    let model = Model::new(&workload, &shape, &machine).unwrap();
    let atoms = atoms(&model);
    let cost = |work_max| {
        let mut search = Search::new(&model, &atoms, work_max);
        let blocks = atoms.iter().map(|atom| search.atom(atom)).collect();
        let groups: Vec<Vec<usize>> = search
            .solve(blocks)
            .into_iter()
            .flat_map(Block::into_groups)
            .collect();
        assert_eq!(sorted(groups.clone()).concat().len(), 40);
        model.layout_ns(&groups)
    };
    let (none, some, all) = (cost(0), cost(80_000), cost(WORK_MAX));
    assert!(none > some && some > all, "{none} {some} {all}");
}

/// 10,000 attributes in pairs that are read together, far apart in the table, beside
/// statements that read thousands: the pairs are found, and nothing is lost.
#[test]
fn very_wide_tables_are_searched_in_clusters() {
    let attributes = 10_000;
    let mut footprints: Vec<Footprint> = (0..200).map(|at| read([at, at + 5_000], 100.0)).collect();
    footprints.push(read(0..attributes, 0.1));
    footprints.push(read((0..attributes).step_by(3), 0.1));
    let groups = found(
        &shape(vec![4; attributes], 1_000_000),
        &workload(footprints),
    );
    let mut all = groups.concat();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..attributes));
    for at in 0..200 {
        let group = groups.iter().find(|group| group.contains(&at)).unwrap();
        assert!(group.contains(&(at + 5_000)), "{at} {group:?}");
    }
}

fn any_footprint(attributes: usize) -> impl Strategy<Value = Footprint> {
    let some = move || proptest::collection::vec(0..attributes, 1..6);
    let predicates = proptest::collection::vec((0..attributes, 0.0..=1.0_f64), 0..3);
    let access = prop_oneof![
        3 => (predicates, some(), 0.0..=1.0_f64).prop_map(|(predicates, projection, share)| {
            let filter = |(attribute, selectivity)| Filter { attribute, selectivity };
            let predicates = predicates.into_iter().map(filter).collect();
            Access::Scan(Scan { share, predicates, projection })
        }),
        2 => some().prop_map(|attributes| Access::Read { attributes }),
        1 => some().prop_map(|attributes| Access::Update { attributes }),
        1 => (1.0..100.0).prop_map(|rows| Access::Insert { rows }),
    ];
    // Weights span what scans of many rows and reads of one differ by.
    let weight = (0..20_i32).prop_map(|power| f64::from(power).exp2());
    (access, weight).prop_map(|(access, weight)| Footprint { access, weight })
}

fn any_table() -> impl Strategy<Value = (TableShape, Workload)> {
    (1..12_usize).prop_flat_map(|attributes| {
        let bytes = || {
            let one = prop_oneof![Just(0), Just(1), Just(2), Just(4), Just(8), Just(16)];
            proptest::collection::vec(one, attributes)
        };
        let footprints = proptest::collection::vec(any_footprint(attributes), 1..8);
        (bytes(), bytes(), 1..200_000_u64, 0..200_000_u64, footprints).prop_map(
            |(hot, frozen, rows, frozen_rows, footprints)| {
                let mut shape = shape(hot, rows);
                shape.frozen = Part {
                    rows: frozen_rows,
                    slot_bytes: frozen,
                };
                (shape, workload(footprints))
            },
        )
    })
}

/// All partitions of `left`, each set's first element first.
fn partitions(left: &[usize]) -> Vec<Vec<Vec<usize>>> {
    let Some((&first, rest)) = left.split_first() else {
        return vec![Vec::new()];
    };
    let mut all = Vec::new();
    for partition in partitions(rest) {
        for at in 0..partition.len() {
            let mut joined: Vec<Vec<usize>> = partition.clone();
            joined[at].insert(0, first);
            all.push(joined);
        }
        let mut apart = partition;
        apart.push(vec![first]);
        all.push(apart);
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The groups hold every attribute once, cost no more than atoms, columns or
    /// one row of all atoms, and greedy search never beats the exact one.
    #[test]
    fn exact_search_is_the_best((shape, workload) in any_table()) {
        let machine = Machine::default();
        let mut model = Model::new(&workload, &shape, &machine).unwrap();
        let atoms = atoms(&model);
        model.price_alone(&atoms);
        let groups = search(&model, &atoms);
        let all: Vec<usize> = sorted(groups.clone()).concat();
        prop_assert_eq!(all.len(), shape.names.len());
        prop_assert!((0..shape.names.len()).all(|at| all.contains(&at)));
        let ns = model.layout_ns(&groups);
        let no_less = |other: f64| other >= ns * (1.0 - 1e-7);
        prop_assert!(no_less(model.layout_ns(&atoms)));
        prop_assert!(no_less(model.layout_ns(&[atoms.concat()])));
        let columns: Vec<Vec<usize>> = all.iter().map(|&at| vec![at]).collect();
        prop_assert!(no_less(model.layout_ns(&columns)));
        let mut search = Search::new(&model, &atoms, WORK_MAX);
        let blocks = atoms.iter().map(|atom| search.atom(atom)).collect();
        let greedy: f64 = search.greedy(blocks).iter().map(|block| block.ns).sum();
        prop_assert!(no_less(greedy), "{} {}", greedy, ns);
    }

    /// Enumerating every merge of atoms finds nothing better than the subsets do.
    #[test]
    fn exact_search_is_enumeration((shape, workload) in any_table()) {
        let machine = Machine::default();
        let mut model = Model::new(&workload, &shape, &machine).unwrap();
        let atoms = atoms(&model);
        prop_assume!(atoms.len() <= 6);
        model.price_alone(&atoms);
        let mut search = Search::new(&model, &atoms, WORK_MAX);
        let blocks: Vec<Block> = atoms.iter().map(|atom| search.atom(atom)).collect();
        let positions: Vec<usize> = (0..atoms.len()).collect();
        let cheapest = partitions(&positions)
            .into_iter()
            .map(|partition| partition.into_iter().map(|group| match group[..] {
                [one] => blocks[one].ns,
                _ => {
                    let group: Vec<usize> = group.iter().flat_map(|&at| atoms[at].clone()).collect();
                    model.group_ns(&group, &mut 0)
                }
            }).sum())
            .fold(f64::INFINITY, f64::min);
        let exact: f64 = search.exact(blocks).iter().map(|block| block.ns).sum();
        prop_assert!((exact - cheapest).abs() <= 1e-7 * cheapest, "{exact} {cheapest}");
    }

    /// Attributes in another order are laid together as before.
    #[test]
    fn order_of_attributes_does_not_matter(
        ((shape, workload), to) in any_table().prop_flat_map(|(shape, workload)| {
            let positions: Vec<usize> = (0..shape.names.len()).collect();
            (Just((shape, workload)), Just(positions).prop_shuffle())
        }),
    ) {
        let mut moved = shape.clone();
        for (from, &to) in to.iter().enumerate() {
            moved.hot.slot_bytes[to] = shape.hot.slot_bytes[from];
            moved.frozen.slot_bytes[to] = shape.frozen.slot_bytes[from];
        }
        let mut moved_workload = workload.clone();
        for footprint in &mut moved_workload.footprints {
            match &mut footprint.access {
                Access::Scan(scan) => {
                    scan.projection.iter_mut().for_each(|at| *at = to[*at]);
                    scan.predicates.iter_mut().for_each(|p| p.attribute = to[p.attribute]);
                }
                Access::Read { attributes } | Access::Update { attributes } => {
                    attributes.iter_mut().for_each(|at| *at = to[*at]);
                }
                Access::Insert { .. } => {}
            }
        }
        let groups = found(&shape, &workload);
        let renamed = groups.iter().map(|group| group.iter().map(|&at| to[at]).collect());
        prop_assert_eq!(sorted(renamed.collect()), found(&moved, &moved_workload));
    }
}
