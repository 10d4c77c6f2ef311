// Package ruleset owns what the service proxy's nftables rules are: the table of an IP
// family, and what each service has in it, as pure functions of services, endpoints and
// the node. The scripts in testdata show the rules.
package ruleset
