// Package host is what the agent asks of its machine before it runs pods, and
// what it does to itself there: [Check] refuses machines that are not as they
// have to be, [Prepare] makes the best of the others, and [Lock] keeps a second
// agent away.
package host
