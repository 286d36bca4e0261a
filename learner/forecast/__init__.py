"""What privacy will cost, before it is paid: bounds, a simulated twin, a verdict for each owner."""
