"""What both adapters stand on even where the core cannot be imported: the standard library."""
