// Package ruleset owns what the nftables rules of network policies are: the tables of a
// node, as a pure function of policies, namespaces and pods, and what a change of one of
// them changes in the tables. The scripts in testdata show the rules.
package ruleset
