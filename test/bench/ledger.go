package main

// A ledger collects the values of rows over rounds.
type ledger struct {
	rows   []row // in the order of their first value
	values map[row]map[string][]float64
}

func newLedger() *ledger { return &ledger{values: map[row]map[string][]float64{}} }

// add records a value of a system.
func (l *ledger) add(system string, r row, value float64) {
	if l.values[r] == nil {
		l.rows = append(l.rows, r)
		l.values[r] = map[string][]float64{}
	}
	l.values[r][system] = append(l.values[r][system], value)
}

func (l *ledger) results() []result {
	results := make([]result, len(l.rows))
	for i, r := range l.rows {
		results[i] = evaluate(r, l.values[r]["svc"], l.values[r]["kube"])
	}
	return results
}
